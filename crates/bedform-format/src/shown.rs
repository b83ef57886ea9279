//! Escaping of text from files, servers and callers, before it is shown to people.
//!
//! A name in a file may contain any characters. Control characters can rewrite a terminal's screen
//! and title, bidirectional and zero-width characters can make one name look like another, and a
//! long name can hide other text. So every message passes through [`message`], and every name in a
//! table through [`printable`]. Values for programs (JSON) keep their characters.

use std::borrow::Cow;

/// Largest number of characters of a message.
pub const MESSAGE_CHARS_MAX: usize = 2000;
/// Largest number of characters of a name or value in a message or table.
pub const NAME_CHARS_MAX: usize = 300;
/// The mark in place of omitted characters.
const ELLIPSIS: &str = "...";

/// Returns true for control characters, bidirectional controls, and invisible characters.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}' | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Replaces invisible characters by Rust's escapes, and truncates the text to `chars_max`
/// characters.
///
/// ```
/// use bedform_format::shown::printable;
/// assert_eq!(printable("t\u{1b}[2J\u{202e}", 300), "t\\u{1b}[2J\\u{202e}");
/// assert_eq!(printable("d\u{e9}bit", 300), "d\u{e9}bit");
/// assert_eq!(printable("temperature", 8), "tempe...");
/// ```
pub fn printable(text: &str, chars_max: usize) -> Cow<'_, str> {
    // A text never has more characters than bytes.
    if text.len() <= chars_max && !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    let mut left = chars_max;
    // The end of the text if an ellipsis must follow.
    let mut end = 0;
    for character in text.chars() {
        let start = shown.len();
        match is_hidden(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
        let count = if is_hidden(character) { shown.len() - start } else { 1 };
        if count > left {
            shown.truncate(end);
            shown.push_str(ELLIPSIS);
            break;
        }
        left -= count;
        if left >= ELLIPSIS.len() {
            end = shown.len();
        }
    }
    Cow::Owned(shown)
}

/// Escapes a message and shortens it to [`MESSAGE_CHARS_MAX`] characters. It removes the middle:
/// the beginning names the subject, and the end the remedy.
pub fn message(text: String) -> String {
    match printable(&text, usize::MAX) {
        Cow::Borrowed(_) if text.len() <= MESSAGE_CHARS_MAX => text,
        shown => without_middle(&shown),
    }
}

/// Quotes a word for a POSIX shell where it needs quotes, so that a command in a message can be
/// pasted.
///
/// Messages put commands into single quotes, so that words get double ones where these are enough.
///
/// ```
/// use bedform_format::shown::shell_quoted;
/// assert_eq!(shell_quoted("g/t_2"), "g/t_2");
/// assert_eq!(shell_quoted("it's 5"), "\"it's 5\"");
/// assert_eq!(shell_quoted("$HOME"), "'$HOME'");
/// ```
pub fn shell_quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    // The shell interprets these within double quotes, too.
    Cow::Owned(match text.contains(['"', '$', '`', '\\', '!']) {
        false => format!("\"{text}\""),
        true => format!("'{}'", text.replace('\'', "'\"'\"'")),
    })
}

/// Quotes a path for a shell, as [`shell_quoted`]; a leading `-` gets `./`, since it would be an
/// option.
///
/// ```
/// use bedform_format::shown::shell_path;
/// assert_eq!(shell_path("era5 1.nc"), "\"era5 1.nc\"");
/// assert_eq!(shell_path("-r"), "./-r");
/// ```
pub fn shell_path(path: &str) -> Cow<'_, str> {
    if path.starts_with('-') {
        return Cow::Owned(shell_quoted(&format!("./{path}")).into_owned());
    }
    shell_quoted(path)
}

fn without_middle(text: &str) -> String {
    let end = MESSAGE_CHARS_MAX / 4;
    let start = MESSAGE_CHARS_MAX - end - ELLIPSIS.len();
    let mut places = text.char_indices().map(|(at, _)| at);
    let Some(cut) = places.by_ref().nth(start) else { return text.to_owned() };
    // Returns the whole text if an ellipsis would save nothing.
    if places.by_ref().nth(end + ELLIPSIS.len() - 1).is_none() {
        return text.to_owned();
    }
    let from = text.char_indices().rev().nth(end - 1).map_or(cut, |(at, _)| at);
    format!("{}{ELLIPSIS}{}", &text[..cut], &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIDDEN: [char; 14] = [
        '\0',
        '\n',
        '\r',
        '\t',
        '\u{7}',
        '\u{1b}',
        '\u{7f}',
        '\u{9b}',
        '\u{200b}',
        '\u{202e}',
        '\u{2028}',
        '\u{2066}',
        '\u{feff}',
        '\u{e0041}',
    ];

    #[test]
    fn nothing_hidden_is_left_and_what_can_be_seen_stays() {
        for hidden in HIDDEN {
            let text = format!("a{hidden}b");
            for shown in [printable(&text, 300).into_owned(), message(text.clone())] {
                assert!(
                    shown.is_ascii() && shown.chars().all(|one| !one.is_control()),
                    "{shown:?}"
                );
                assert!(shown.starts_with("a\\") && shown.ends_with('b'), "{shown:?}");
                // Escaping a second time changes nothing.
                assert_eq!(message(shown.clone()), shown);
            }
        }
        for text in ["", "temperature", "h\u{f6}he \u{6e29}\u{5ea6}", "\\u{1b}", "\u{1f30a}"] {
            assert_eq!(printable(text, 300), text);
            assert_eq!(message(text.to_owned()), text);
        }
    }

    #[test]
    fn texts_are_cut_at_their_limit_and_not_before() {
        for (length, max) in [(10, 10), (11, 10), (5000, 300), (3, 3), (4, 3)] {
            for one in ['x', '\u{f6}', '\u{1b}'] {
                let text: String = std::iter::repeat_n(one, length).collect();
                let whole = printable(&text, usize::MAX).into_owned();
                let shown = printable(&text, max);
                assert!(shown.chars().count() <= max, "{shown}");
                assert_eq!(shown == whole, whole.chars().count() <= max, "{shown}");
                assert!(shown == whole || shown.ends_with("..."), "{shown}");
            }
        }
        for length in [MESSAGE_CHARS_MAX - 1, MESSAGE_CHARS_MAX, MESSAGE_CHARS_MAX + 1, 10_000_000]
        {
            for one in ["x", "\u{f6}", "\u{1b}"] {
                let text = format!("what: {}; to do", one.repeat(length));
                let whole = printable(&text, usize::MAX).into_owned();
                let shown = message(text);
                assert!(shown.chars().count() <= MESSAGE_CHARS_MAX);
                assert_eq!(shown == whole, whole.chars().count() <= MESSAGE_CHARS_MAX);
                assert!(shown.starts_with("what: ") && shown.ends_with("; to do"));
            }
            let text = "x".repeat(length);
            assert_eq!(message(text.clone()) == text, length <= MESSAGE_CHARS_MAX);
        }
    }
}
