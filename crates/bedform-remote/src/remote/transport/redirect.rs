//! The rules for redirects of web servers.
//!
//! At most ten redirects, within http and https, never from https to http. A redirect may lead to
//! public addresses. It may lead to private ones, or those of this machine, only from such an
//! address. It never leads to addresses that hand out a machine's credentials. The rules apply to
//! the addresses that the connection uses, so that a name that resolves differently the second time
//! gains nothing. Where a proxy resolves names, the proxy alone decides.
//!
//! Another server receives the range and the conditions of a request, and the formats that it
//! accepts; no other header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use ::object_store::client::HttpResponse;
use ::url::{Host, Url};
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, LOCATION, RANGE,
};

use super::ServerFailure;
use crate::remote::put::random;

const REDIRECTS_MAX: usize = 10;
/// The number of last path segments by which two addresses count as those of the same object.
const SAME_SEGMENTS: usize = 2;
/// The headers that another server receives.
const HEADERS: [HeaderName; 7] = [
    ACCEPT,
    ACCEPT_ENCODING,
    RANGE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
];
/// Addresses at which clouds hand out credentials, in addition to link-local ones.
const CREDENTIALS_V4: [Ipv4Addr; 2] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];
const CREDENTIALS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// The scope from which an address can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetworkScope {
    Public,
    /// From the same network.
    Private,
    /// From the same machine.
    Loopback,
    /// From the same link, or from nowhere: no redirect leads there.
    Nowhere,
}

impl NetworkScope {
    pub(super) const COUNT: usize = 4;

    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [first, second, ..] = address.octets();
        match first {
            _ if CREDENTIALS_V4.contains(&address) || address.is_link_local() => Self::Nowhere,
            // "This" network, and all ranges that are no address of one machine.
            0 | 224.. => Self::Nowhere,
            127 => Self::Loopback,
            _ if address.is_private() => Self::Private,
            // Shared by the customers of a provider.
            100 if (64..128).contains(&second) => Self::Private,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if let Some(embedded) = embedded_v4(address) {
            return Self::of_v4(embedded);
        }
        if address == CREDENTIALS_V6 {
            Self::Nowhere
        } else if address.is_loopback() {
            Self::Loopback
        } else if address.is_unique_local() {
            Self::Private
        } else if address.segments()[0] & 0xe000 == 0x2000 {
            Self::Public
        } else {
            Self::Nowhere
        }
    }

    /// Returns the scope that both reach.
    fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Public }
    }

    fn reaches(self, address: IpAddr) -> bool {
        match Self::of(address) {
            Self::Public => true,
            Self::Nowhere => false,
            to => to == self,
        }
    }
}

/// Returns the IPv4 address that an IPv6 address stands for: mapped, translated (NAT64), or
/// tunnelled (6to4).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(of(high, low))
        }
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

/// The redirects of a request so far, and the rules for the next.
#[derive(Debug)]
pub(super) struct RedirectTrail {
    origin: Url,
    at: Url,
    steps: usize,
    /// The allowed scope, once the origin was left.
    reach: Option<NetworkScope>,
}

impl RedirectTrail {
    pub(super) fn new(origin: Url) -> Self {
        Self { at: origin.clone(), origin, steps: 0, reach: None }
    }

    pub(super) fn at(&self) -> &Url {
        &self.at
    }

    /// Returns the allowed scope; `None` at the origin.
    pub(super) fn reach(&self) -> Option<NetworkScope> {
        self.reach
    }

    /// Follows the redirect of `response` to `to`.
    ///
    /// # Errors
    /// `Redirected` if that is not allowed.
    pub(super) async fn step(
        &mut self,
        mut to: Url,
        response: &HttpResponse,
    ) -> Result<(), ServerFailure> {
        self.steps += 1;
        if self.steps > REDIRECTS_MAX {
            return Err(ServerFailure::redirected(&to, "there is no end of redirects"));
        }
        check_scheme(&self.at, &to)?;
        if self.reach.is_some() || to.origin() != self.origin.origin() {
            let here = match self.reach {
                None => resolved(self.at.host()).await,
                Some(reach) => reach,
            };
            let reach = here.and(met(response));
            check_host(&to, reach)?;
            self.reach = Some(reach);
        }
        // A user name and password in another server's address are not sent.
        let _ = to.set_username("");
        let _ = to.set_password(None);
        self.at = to;
        Ok(())
    }

    /// True if the present address is that of the same object: only then does a 404 say that the
    /// requested object is missing. A login page, or a store behind a short link, has another
    /// address.
    pub(super) fn is_of_same_object(&self) -> bool {
        let last = |url: &Url| {
            let segments = url.path_segments().map(|segments| segments.rev().take(SAME_SEGMENTS));
            segments.map(|segments| segments.map(str::to_owned).collect::<Vec<_>>())
        };
        last(&self.at) == last(&self.origin)
    }

    /// Returns the headers that the request has at the present address.
    pub(super) fn headers(&self, all: &HeaderMap) -> HeaderMap {
        match self.reach {
            None => all.clone(),
            Some(_) => {
                let kept =
                    HEADERS.iter().filter_map(|name| Some((name.clone(), all.get(name)?.clone())));
                kept.collect()
            }
        }
    }
}

/// Returns the target of a redirect; `None` for other answers.
pub(super) fn location_of(response: &HttpResponse, at: &Url) -> Option<Url> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| is_redirect)?;
    at.join(location.to_str().ok()?).ok()
}

fn check_scheme(at: &Url, to: &Url) -> Result<(), ServerFailure> {
    match (at.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => Ok(()),
        (_, "http") => Err(ServerFailure::redirected(to, "https is not left for http")),
        _ => Err(ServerFailure::redirected(to, "only http and https are followed")),
    }
}

const NO_ACCESS: &str = "nothing there is to be read from elsewhere";

/// Fails for a literal address outside the allowed scope; names are checked when they are resolved.
fn check_host(to: &Url, reach: NetworkScope) -> Result<(), ServerFailure> {
    let address = match to.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(_)) => return Ok(()),
        None => return Err(ServerFailure::redirected(to, "there is no server in it")),
    };
    if reach.reaches(address) { Ok(()) } else { Err(ServerFailure::redirected(to, NO_ACCESS)) }
}

/// Returns the scope of the address that sent an answer.
fn met(response: &HttpResponse) -> NetworkScope {
    let mut same = reqwest::Response::from(::http::Response::new(""));
    same.extensions_mut().clone_from(response.extensions());
    same.remote_addr().map_or(NetworkScope::Public, |address| NetworkScope::of(address.ip()))
}

/// Returns the common scope of all addresses of a host.
async fn resolved(host: Option<Host<&str>>) -> NetworkScope {
    let addresses = match host {
        Some(Host::Ipv4(address)) => vec![IpAddr::V4(address)],
        Some(Host::Ipv6(address)) => vec![IpAddr::V6(address)],
        Some(Host::Domain(name)) => look_up(name.to_owned()).await.unwrap_or_default(),
        None => Vec::new(),
    };
    let reaches = addresses.into_iter().map(NetworkScope::of);
    reaches.reduce(NetworkScope::and).unwrap_or(NetworkScope::Public)
}

async fn look_up(name: String) -> std::io::Result<Vec<IpAddr>> {
    let looking = tokio::task::spawn_blocking(move || {
        let found = (name.as_str(), 0).to_socket_addrs()?;
        Ok(found.map(|address| address.ip()).collect())
    });
    looking.await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

/// A resolver of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameResolver {
    All,
    /// Public addresses, and those of this scope.
    Within(NetworkScope),
}

impl NameResolver {
    /// Returns the allowed addresses of `name`, in random order, so that servers share the work.
    fn allowed(self, name: &str, mut found: Vec<IpAddr>) -> Result<Vec<IpAddr>, ServerFailure> {
        if let Self::Within(reach) = self {
            found.retain(|address| reach.reaches(*address));
            if found.is_empty() {
                return Err(ServerFailure::Redirected { to: name.to_owned(), why: NO_ACCESS });
            }
        }
        for left in (2..=found.len()).rev() {
            let other = usize::try_from(random() % left as u64).unwrap_or(0);
            found.swap(left - 1, other);
        }
        Ok(found)
    }
}

impl Resolve for NameResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let names = *self;
        Box::pin(async move {
            let found = look_up(name.as_str().to_owned()).await?;
            let allowed = names.allowed(name.as_str(), found)?;
            // The client replaces the port.
            let addresses = allowed.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(text: &str) -> NetworkScope {
        NetworkScope::of(text.parse().unwrap())
    }

    #[test]
    fn another_address_is_of_the_same_object_by_the_end_of_its_path() {
        let is_same = |origin: &str, at: &str| {
            let mut trail = RedirectTrail::new(Url::parse(origin).unwrap());
            trail.at = Url::parse(at).unwrap();
            trail.is_of_same_object()
        };
        assert!(is_same("http://a/s.zarr/t/c/0", "https://b.org/data/s.zarr/t/c/0?token=1"));
        assert!(is_same("http://a/s/c/0", "http://a/s/c/0"));
        for other in ["http://a/login", "http://a/login?next=/s/c/0", "http://a/s/c/1", "http://a/"]
        {
            assert!(!is_same("http://a/s/c/0", other), "{other}");
        }
    }

    #[test]
    fn addresses_are_reached_from_where_they_are() {
        for text in ["8.8.8.8", "100.63.255.255", "172.32.0.1", "2606:4700::1", "2002:808:808::1"] {
            assert_eq!(reach(text), NetworkScope::Public, "{text}");
        }
        for text in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.255.255",
            "100.64.0.1",
            "fc00::1",
            "fdff::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:c0a8:1::1",
        ] {
            assert_eq!(reach(text), NetworkScope::Private, "{text}");
        }
        for text in ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"] {
            assert_eq!(reach(text), NetworkScope::Loopback, "{text}");
        }
        for text in [
            "0.0.0.0",
            "0.0.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::7f00:1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
        ] {
            assert_eq!(reach(text), NetworkScope::Nowhere, "{text}");
        }
    }

    #[test]
    fn a_host_may_be_spelled_in_any_way() {
        for host in [
            "169.254.169.254",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "169.254.43518",
            "[::ffff:169.254.169.254]",
            "[fd00:ec2::254]",
            "0",
            "[::]",
        ] {
            let to = Url::parse(&format!("http://{host}/latest")).unwrap();
            for from in [
                NetworkScope::Public,
                NetworkScope::Private,
                NetworkScope::Loopback,
                NetworkScope::Nowhere,
            ] {
                assert!(check_host(&to, from).is_err(), "{host} from {from:?}");
            }
        }
        for host in ["127.1", "0x7f000001", "[::1]", "017700000001"] {
            let to = Url::parse(&format!("http://{host}/")).unwrap();
            for from in [NetworkScope::Public, NetworkScope::Private, NetworkScope::Nowhere] {
                assert!(check_host(&to, from).is_err(), "{host} from {from:?}");
            }
            assert_eq!(check_host(&to, NetworkScope::Loopback), Ok(()));
        }
    }

    #[test]
    fn names_have_the_addresses_that_may_be_reached_and_else_none() {
        let addresses = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let all = addresses(&["10.0.0.1", "127.0.0.1", "169.254.169.254", "8.8.8.8", "::1"]);
        let kept = |names: NameResolver, found: &[IpAddr]| {
            let mut kept = names.allowed("a", found.to_vec()).unwrap_or_default();
            kept.sort_unstable();
            kept
        };
        let within = |reach| kept(NameResolver::Within(reach), &all);
        assert_eq!(within(NetworkScope::Public), addresses(&["8.8.8.8"]));
        assert_eq!(within(NetworkScope::Nowhere), addresses(&["8.8.8.8"]));
        assert_eq!(within(NetworkScope::Private), addresses(&["8.8.8.8", "10.0.0.1"]));
        assert_eq!(within(NetworkScope::Loopback), addresses(&["8.8.8.8", "127.0.0.1", "::1"]));
        assert_eq!(kept(NameResolver::All, &all).len(), all.len());
        assert!(kept(NameResolver::Within(NetworkScope::Public), &all[..3]).is_empty());
    }

    /// Checks each step of a redirected request.
    #[test]
    fn schemes_and_their_number_are_bounded() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = || HttpResponse::new(Vec::<u8>::new().into());
        let go = |trail: &mut RedirectTrail, to: &str| {
            runtime.block_on(trail.step(Url::parse(to).unwrap(), &answer()))
        };
        let trail = |from: &str| RedirectTrail::new(Url::parse(from).unwrap());
        assert!(go(&mut trail("https://8.8.8.8/a"), "http://8.8.8.8/a").is_err());
        assert!(go(&mut trail("https://8.8.8.8/a"), "https://1.1.1.1/a").is_ok());
        assert!(go(&mut trail("http://8.8.8.8/a"), "https://1.1.1.1/a").is_ok());
        for to in ["ftp://1.1.1.1/", "file:///etc/passwd", "gopher://1.1.1.1/", "data:,x"] {
            assert!(go(&mut trail("http://8.8.8.8/a"), to).is_err(), "{to}");
        }
        // The address of this answer is unknown here, and so counts as public.
        assert!(go(&mut trail("http://127.0.0.1:1/"), "http://127.0.0.1:2/").is_err());
        let mut around = trail("http://8.8.8.8/");
        for step in 0..REDIRECTS_MAX {
            assert_eq!(go(&mut around, &format!("http://8.8.8.8/{step}")), Ok(()));
        }
        assert!(go(&mut around, "http://8.8.8.8/").is_err());
    }

    #[test]
    fn another_server_gets_no_credentials_and_none_when_it_leads_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut all = HeaderMap::new();
        for name in ["authorization", "cookie", "x-amz-security-token", "range", "if-match"] {
            all.insert(name, "x".parse().unwrap());
        }
        let mut trail = RedirectTrail::new(Url::parse("http://8.8.8.8/").unwrap());
        assert_eq!(trail.headers(&all).len(), 5);
        for to in ["http://u:p@8.8.8.8:81/?sig=x", "http://8.8.8.8/"] {
            let answer = HttpResponse::new(Vec::<u8>::new().into());
            runtime.block_on(trail.step(Url::parse(to).unwrap(), &answer)).unwrap();
            assert_eq!(trail.headers(&all).len(), 2);
            assert_eq!((trail.at().username(), trail.at().password()), ("", None));
        }
    }
}
