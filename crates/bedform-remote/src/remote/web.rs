//! Web servers with files: their clients, and the queries of their URLs.

use std::sync::Arc;

use ::object_store::http::HttpBuilder;
use ::percent_encoding::percent_decode_str;
use ::url::Url;

use super::client::ServerClients;
use super::error::redacted;
use super::transport::WithQuery;
use super::url::{
    RemoteOptions, ResolvedUrl, Result, built, client_options, fingerprint, host_of, refused,
    retries, system_of, transport,
};

impl ResolvedUrl {
    /// Returns a place on a web server; each request carries `query`.
    pub(super) fn of_server(
        url: &str,
        query: Option<&str>,
        shown: String,
        options: &RemoteOptions,
    ) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| refused(&shown, &redacted(&error.to_string()));
        let mut parsed = Url::parse(url).map_err(|error| failed(&error))?;
        let path = percent_decode_str(parsed.path().trim_matches('/')).decode_utf8_lossy();
        let path = path.into_owned();
        let server = parsed.join("/").map_err(|error| failed(&error))?;
        parsed.set_query(query);
        // In its escaped form, as in a request.
        let query: Option<Arc<str>> = parsed.query().map(Arc::from);
        let (has_query, rights) = match &query {
            // A query may grant access, or name another file.
            Some(query) => (true, fingerprint(&[Some(query.to_string())])),
            // Requests are unsigned.
            None => (false, String::new()),
        };
        let plain = client_options(parsed.scheme() == "http");
        let transport = WithQuery { transport: transport(options, true), query };
        let builder = HttpBuilder::new().with_url(server).with_client_options(plain);
        let builder = builder.with_http_connector(transport);
        let own = options.clone();
        let client = ServerClients::new(Box::new(move |repeats| {
            built(builder.clone().with_retry(retries(&own, repeats)).build())
        }));
        client.try_store().map_err(|reason| refused(&shown, &reason))?;
        let system = system_of(parsed.scheme(), &host_of(url), "");
        Ok(Self { client, prefix: path, shown, system, rights, lists: false, has_query })
    }
}

/// Splits the URL of a web server into the part before the query, and the query if there is one. A
/// fragment is for browsers and is dropped.
pub(super) fn without_query(url: &str) -> (&str, Option<&str>) {
    let is_web = ["http://", "https://"].iter().any(|scheme| {
        url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    if !is_web {
        return (url, None);
    }
    let (url, _) = url.split_once('#').unwrap_or((url, ""));
    match url.split_once('?') {
        Some((url, query)) => (url, Some(query).filter(|query| !query.is_empty())),
        None => (url, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_on_web_servers_have_a_query_and_fragments_are_for_browsers() {
        let of = |url| {
            ResolvedUrl::of(url, &RemoteOptions::default())
                .map(|place| (place.shown, place.prefix, place.has_query))
        };
        let file = |has_query| Ok(("https://h/a/b.nc".to_owned(), "a/b.nc".to_owned(), has_query));
        assert_eq!(of("https://h/a/b.nc?token=x/y#z"), file(true));
        assert_eq!(of("https://h/a/b.nc#mode=bytes"), file(false));
        assert_eq!(of("https://h/a/b.nc?"), file(false));
        for url in ["s3://secret/a.nc?x=secret", "gs://b/a#secret", "https://u:secret@h/a.nc?x"] {
            let said = of(url).unwrap_err().to_string();
            assert!(said.contains("only the URLs of files on web servers have a query"), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
        let rights = |url| ResolvedUrl::of(url, &RemoteOptions::default()).unwrap().rights;
        assert_ne!(rights("https://h/a?b=1"), rights("https://h/a?b=2"));
    }
}
