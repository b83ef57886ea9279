//! Descriptions of collective calls, by which the members of a group detect that their calls
//! differ.
//!
//! A member sends a digest of its call in front of its data ([`MemberGroup`](super::MemberGroup)),
//! so equal calls cost eight bytes of a message. Only if digests differ do the members describe
//! their calls in words, and all fail with one text that names the ranks and the call of each.

use std::borrow::Cow;
use std::fmt::Write as _;

use bedform_format::checksum::Fingerprint;
use bedform_format::metadata::hex;

/// Number of bytes of a digest.
pub(super) const DIGEST_BYTES: usize = 8;
/// The digest of a call that a member cannot name: it matches every other one.
pub(super) const ANY: [u8; DIGEST_BYTES] = [0; DIGEST_BYTES];
/// Maximum number of different calls in an error, and of runs of ranks for each.
const CALLS_MAX: usize = 4;
const RUNS_MAX: usize = 3;
/// Maximum number of bytes of a call in an error.
const SHOWN_MAX: usize = 160;
/// Number of bytes of an identifier in an error.
const IDENTITY_SHOWN: usize = 4;

/// A collective call, which all members of a group have to make alike.
///
/// ```
/// use bedform::comm::{CollectiveCall, Communicator, MemberGroup, agree, threads};
///
/// let outcomes: Vec<_> = std::thread::scope(|scope| {
///     let call = |member: bedform::comm::ThreadMember| {
///         let text = if member.rank() == 0 { "commit()" } else { "drain()" };
///         let group = MemberGroup::new(Box::new(member));
///         group.enter(CollectiveCall::of("session", [7; 16], text));
///         agree(&group, Ok(())).unwrap_err().to_string()
///     };
///     let all: Vec<_> = threads(3).into_iter().map(|one| scope.spawn(move || call(one))).collect();
///     all.into_iter().map(|one| one.join().unwrap()).collect()
/// });
/// assert!(outcomes[0].contains("rank 0 calls commit(), ranks 1 and 2 call drain()"));
/// assert!(outcomes.iter().all(|text| *text == outcomes[0]));
/// ```
#[derive(Debug, Clone)]
pub struct CollectiveCall {
    text: Cow<'static, str>,
    /// The kind of object on which the call is made, `"session"` or `"store"`.
    kind: &'static str,
    /// Identifier of that object.
    identity: [u8; 16],
    place: Option<String>,
    hands_over: bool,
}

impl CollectiveCall {
    /// Returns the call that users know as `text`, on an object of this `kind` and identity.
    pub fn of(kind: &'static str, identity: [u8; 16], text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), kind, identity, place: None, hands_over: false }
    }

    /// Adds this member's name for the object of the call. It is shown in errors, and may differ
    /// between members.
    #[must_use]
    pub fn at(self, place: String) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Marks a call before which members hand over data. If such calls differ, these data are lost
    /// and the group can only end.
    #[must_use]
    pub fn handing_over(self) -> Self {
        Self { hands_over: true, ..self }
    }

    /// Returns the call as users know it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns a digest of the text, the kind and the identity, in which calls may differ.
    pub(super) fn digest(&self) -> [u8; DIGEST_BYTES] {
        let mut fingerprint = Fingerprint::new();
        fingerprint.update(&self.identity);
        fingerprint.update(self.kind.as_bytes());
        fingerprint.update(&[0]);
        fingerprint.update(self.text.as_bytes());
        let all = fingerprint.finish().to_le_bytes();
        let mut digest = ANY;
        for (at, byte) in all.into_iter().enumerate() {
            digest[at % DIGEST_BYTES] ^= byte;
        }
        // No digest of a call is `ANY`.
        digest[0] |= 1;
        digest
    }

    /// Returns the call in words, for [`differences`].
    pub(super) fn described(&self) -> Vec<u8> {
        let Self { text, kind, identity, place, hands_over } = self;
        let place = place.as_deref().unwrap_or_default();
        let identity = hex(&identity[..IDENTITY_SHOWN]);
        format!("{}\0{text}\0{place}\0{kind} {identity}", u8::from(*hands_over)).into_bytes()
    }
}

/// Returns the common digest of all calls, without those that are [`ANY`]; `None` if two differ.
pub(super) fn common_digest<'a>(
    digests: impl Iterator<Item = &'a [u8; DIGEST_BYTES]>,
) -> Option<[u8; DIGEST_BYTES]> {
    let mut common = ANY;
    for digest in digests.filter(|digest| **digest != ANY) {
        if common == ANY {
            common = *digest;
        } else if common != *digest {
            return None;
        }
    }
    Some(common)
}

/// One of several calls that differ, with the ranks that make it.
struct Differing<'a> {
    /// From [`CollectiveCall::described`]: the text, the place, the object.
    parts: [&'a str; 3],
    ranks: Vec<u32>,
}

/// The result of a comparison of calls that differ.
pub(super) struct Differences {
    /// True if data were handed over before one of them.
    pub(super) loses_data: bool,
    /// True if all are made on the same session or store.
    pub(super) is_of_one_group: bool,
    /// The error message.
    pub(super) text: String,
}

/// Compares calls that differ, each [described](CollectiveCall::described) by its member, by rank.
pub(super) fn differences(described: &[Vec<u8>]) -> Differences {
    let texts: Vec<_> = described.iter().map(|one| String::from_utf8_lossy(one)).collect();
    let mut calls: Vec<Differing<'_>> = Vec::new();
    let mut loses_data = false;
    for (rank, text) in (0_u32..).zip(&texts) {
        let parts: Vec<&str> = text.split('\0').collect();
        let &[flag, text, place, identity] = parts.as_slice() else { continue };
        loses_data |= flag == "1";
        let known =
            calls.iter_mut().find(|call| call.parts[0] == text && call.parts[2] == identity);
        match known {
            Some(call) => call.ranks.push(rank),
            None => calls.push(Differing { parts: [text, place, identity], ranks: vec![rank] }),
        }
    }
    let mut said =
        "the processes must make the same collective calls in the same order: ".to_owned();
    for (number, call) in calls.iter().take(CALLS_MAX).enumerate() {
        let [text, place, identity] = call.parts;
        let (ranks, verb) = (ranks_in_words(&call.ranks), verb(&call.ranks));
        let separator = if number == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(said, "{separator}{ranks} {verb} {}", shortened(text));
        let is_alike = |other: &Differing<'_>| other.parts[0] == text && other.parts[2] != identity;
        match (place.is_empty(), calls.iter().any(is_alike)) {
            (true, false) => {}
            (true, true) => drop(write!(said, " of {identity}")),
            (false, false) => drop(write!(said, " on {}", shortened(place))),
            (false, true) => drop(write!(said, " on {} ({identity})", shortened(place))),
        }
    }
    if calls.len() > CALLS_MAX {
        said.push_str(", others call others");
    }
    let is_of_one_group = calls.iter().all(|call| call.parts[2] == calls[0].parts[2]);
    Differences { loses_data, is_of_one_group, text: said }
}

fn verb(ranks: &[u32]) -> &'static str {
    if ranks.len() == 1 { "calls" } else { "call" }
}

fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= SHOWN_MAX {
        return Cow::Borrowed(text);
    }
    let end = (0..=SHOWN_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Cow::Owned(format!("{}...", &text[..end]))
}

/// Returns ranks, given in ascending order, in words: `ranks 0, 2 to 5 and 7`.
pub fn ranks_in_words(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut().filter(|(_, last)| last.checked_add(1) == Some(*rank)) {
            Some((_, last)) => *last = *rank,
            None => runs.push((*rank, *rank)),
        }
    }
    let is_cut = runs.len() > RUNS_MAX;
    let shown = runs.iter().take(RUNS_MAX).map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first} and {last}"),
        _ => format!("{first} to {last}"),
    });
    let mut shown: Vec<String> = shown.collect();
    if is_cut {
        shown.push("others".to_owned());
    }
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    match shown.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{noun} {} and {last}", rest.join(", ")),
        _ => format!("{noun} {}", shown.concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &'static str) -> CollectiveCall {
        CollectiveCall::of("session", [1; 16], text)
    }

    fn said(calls: &[CollectiveCall]) -> (bool, String) {
        let described: Vec<_> = calls.iter().map(CollectiveCall::described).collect();
        let Differences { loses_data, text, .. } = differences(&described);
        let (_, text) = text.split_once("order: ").unwrap();
        (loses_data, text.to_owned())
    }

    #[test]
    fn digests_tell_calls_apart_and_what_they_are_made_on() {
        let all = [
            call("commit()"),
            call("drain()"),
            CollectiveCall::of("session", [2; 16], "commit()"),
            CollectiveCall::of("store", [1; 16], "commit()"),
        ];
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate() {
                let (one, other) = (one.digest(), other.digest());
                assert_eq!(one == other, at == other_at);
                assert_eq!(
                    common_digest([&one, &ANY, &other].into_iter()).is_some(),
                    at == other_at
                );
            }
        }
        // A member's own name for a store does not count.
        let (here, there) = (call("settle()").at("/a".into()), call("settle()").at("/b".into()));
        assert_eq!(here.digest(), there.digest());
        assert_eq!(common_digest([].into_iter()), Some(ANY));
    }

    #[test]
    fn differences_name_ranks_and_calls() {
        let a = || call("append(\"a\", axis 0)");
        let (b, commit) = (call("append(\"b\", axis 0)"), call("commit()").handing_over());
        let text = "rank 0 calls append(\"b\", axis 0), ranks 1 to 3 call append(\"a\", axis 0)";
        assert_eq!(said(&[b, a(), a(), a()]), (false, text.to_owned()));
        let text = "ranks 0 and 2 call append(\"a\", axis 0), rank 1 calls commit()";
        assert_eq!(said(&[a(), commit, a()]), (true, text.to_owned()));
    }

    #[test]
    fn calls_with_one_text_name_what_they_are_made_on() {
        let [one, other] =
            [[1; 16], [2; 16]].map(|key| CollectiveCall::of("session", key, "commit()"));
        let text =
            "rank 0 calls commit() of session 01010101, rank 1 calls commit() of session 02020202";
        assert_eq!(said(&[one, other]).1, text);
        let [one, other] = [([1; 16], "/a"), ([2; 16], "/b")]
            .map(|(key, place)| CollectiveCall::of("store", key, "session()").at(place.to_owned()));
        let text = "rank 0 calls session() on /a (store 01010101), \
                    rank 1 calls session() on /b (store 02020202)";
        assert_eq!(said(&[one, other]).1, text);
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(
            ranks_in_words(&[0, 2, 3, 5, 6, 7, 9, 11]),
            "ranks 0, 2 and 3, 5 to 7 and others"
        );
        let long = "\u{e4}".repeat(100);
        assert!(shortened(&long).len() <= SHOWN_MAX + 3);
        let many: Vec<_> =
            (0..9).map(|key| CollectiveCall::of("session", [key; 16], "commit()")).collect();
        assert!(said(&many).1.ends_with("others call others"));
    }
}
