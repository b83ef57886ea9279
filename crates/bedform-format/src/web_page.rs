//! Recognition of web pages in the place of data.
//!
//! A server that wants a login often answers with a page, and programs save it under the name of
//! the file that they asked for. Messages name such a page by its title.

use crate::shown::printable;

/// Bytes at the front of a file in which a page is recognized and its title is looked for.
pub const FRONT_BYTES: usize = 8 << 10;
/// Largest number of characters of a title in a message.
const TITLE_CHARS_MAX: usize = 80;
/// First tags of pages, in lower case.
const FIRST_TAGS: [&str; 6] = ["<!doctype html", "<html", "<head", "<title", "<body", "<script"];

/// Returns the description and remedy of a web page that begins with `front`; `None` for other
/// contents.
///
/// ```
/// use bedform_format::web_page::description;
/// let page = b"<!DOCTYPE html>\n<html><head><title>Earthdata Login</title>";
/// assert!(description(page).unwrap().starts_with("a web page, \"Earthdata Login\""));
/// assert_eq!(description(b"<Error><Code>NoSuchKey</Code>"), None);
/// assert_eq!(description(b"CDF\x05"), None);
/// ```
pub fn description(front: &[u8]) -> Option<String> {
    let front = front.strip_prefix(b"\xef\xbb\xbf").unwrap_or(front).trim_ascii_start();
    // Nearly all contents end here.
    if !front.starts_with(b"<") {
        return None;
    }
    let text = String::from_utf8_lossy(&front[..front.len().min(FRONT_BYTES)]);
    let lower = text.to_ascii_lowercase();
    let first = without_preamble(&lower);
    if !FIRST_TAGS.iter().any(|tag| first.starts_with(tag)) {
        return None;
    }
    let title = title(&text, &lower).map(|title| format!(", \"{title}\"")).unwrap_or_default();
    Some(format!(
        "a web page{title}, as servers send for a login or an error: log in, or give credentials, and \
         fetch it again"
    ))
}

/// Returns the text behind comments and the declaration of XML.
fn without_preamble(text: &str) -> &str {
    let mut rest = text;
    for (open, close) in [("<?xml", "?>"), ("<!--", "-->"), ("<!--", "-->")] {
        let end = rest.strip_prefix(open).and_then(|inner| inner.split_once(close));
        rest = end.map_or(rest, |(_, behind)| behind.trim_start());
    }
    rest
}

/// Returns the title of a page, on one line; `lower` is `text` in lower case.
fn title(text: &str, lower: &str) -> Option<String> {
    let open = lower.find("<title")?;
    let start = open + lower[open..].find('>')? + 1;
    let end = start + lower[start..].find("</title")?;
    let words: Vec<&str> = text[start..end].split_whitespace().collect();
    let title = printable(&words.join(" "), TITLE_CHARS_MAX).into_owned();
    (!title.is_empty()).then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_from_other_documents_whatever_stands_above_them() {
        for page in [
            "\u{feff}<!doctype HTML><html>",
            "\n\n <!-- portal --> <html lang=\"en\">\n<head>",
            "<?xml version=\"1.0\"?>\n<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0\">",
            "<HEAD><TITLE></TITLE></HEAD>",
        ] {
            assert!(description(page.as_bytes()).unwrap().starts_with("a web page, as"), "{page}");
        }
        for other in ["", "<", "<?xml version=\"1.0\"?><Error>", "<!-- ", "{\"a\": \"<html>\"}"] {
            assert_eq!(description(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn titles_are_one_printable_line_of_bounded_length() {
        let of =
            |title: &str| description(format!("<html><Title a='b'>{title}</TITLE>").as_bytes());
        let said = |title: &str| of(title).unwrap();
        assert!(said("Log\n  in\u{1b}[2J").contains("\"Log in\\u{1b}[2J\""));
        assert!(said(&"x".repeat(4000)).len() < 300);
        // A title that lies behind the front is left out.
        assert!(said(&"x".repeat(FRONT_BYTES)).starts_with("a web page, as"));
        // In Latin-1.
        assert!(description(b"<html><title>Donn\xe9es</title>").unwrap().contains("Donn"));
    }
}
