//! Bounded lists: a misbehaving server could send pages without end, and its client would follow.
//!
//! A list ends with an error in four cases:
//!
//! - A page has the token of an earlier one.
//! - There are many more pages than new entries fill.
//! - There are too many entries.
//! - The list takes longer than the deadline and one second for each 500 entries.

use std::collections::BTreeSet;
use std::fmt::{self, Debug, Display};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::object_store::list::{PaginatedListOptions, PaginatedListStore};
use ::object_store::path::{DELIMITER, Path};
use ::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::transport::{ServerFailure, call};

type Result<T> = std::result::Result<T, Error>;

/// The most entries of a list.
const ENTRIES_MAX: u64 = 4 << 20;
const ENTRIES_PER_SECOND_MIN: u64 = 500;
/// The most pages without entries, since some servers skip deleted ones; below, the least entries
/// of other pages on average.
const EMPTY_PAGES_MAX: u64 = 1000;
const ENTRIES_PER_PAGE_MIN: u64 = 10;

/// A store whose lists are bounded.
#[derive(Debug)]
pub(super) struct Paged<S> {
    pub(super) store: Arc<S>,
    /// The time for a list, in addition to that for its entries.
    pub(super) deadline: Duration,
}

impl<S> Display for Paged<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a store whose lists end")
    }
}

/// A list in progress.
struct PagedList<S> {
    store: Arc<S>,
    prefix: Option<String>,
    has_delimiter: bool,
    /// The token of the next page; `None` before the first.
    token: Option<String>,
    is_over: bool,
    progress: ListProgress,
}

/// The counts by which an endless list is detected.
#[derive(Debug)]
struct ListProgress {
    begun: Instant,
    deadline: Duration,
    entries: u64,
    pages: u64,
    /// The first name of the last page with entries.
    first: Option<Path>,
    /// The token of the last page whose number is a power of two. Each later token is compared with
    /// it, so that any cycle is detected.
    landmark: Option<String>,
}

impl ListProgress {
    fn new(deadline: Duration) -> Self {
        Self { begun: Instant::now(), deadline, entries: 0, pages: 0, first: None, landmark: None }
    }

    /// Counts a page, whose successor has this token.
    ///
    /// # Errors
    /// If the list is endless.
    fn note(&mut self, page: &ListResult, token: Option<&str>) -> Result<()> {
        let names = page.objects.iter().map(|object| &object.location);
        let first = names.chain(&page.common_prefixes).next();
        let is_new = first.is_some() && first != self.first.as_ref();
        if is_new {
            self.first = first.cloned();
            self.entries += (page.objects.len() + page.common_prefixes.len()) as u64;
        }
        self.pages += 1;
        let Some(token) = token else { return Ok(()) };
        if self.landmark.as_deref() == Some(token) {
            return Err(endless("it begins again".to_owned()));
        }
        if self.pages.is_power_of_two() {
            self.landmark = Some(token.to_owned());
        }
        let Self { entries, pages, .. } = *self;
        if pages > EMPTY_PAGES_MAX + entries / ENTRIES_PER_PAGE_MIN {
            return Err(endless(format!("it has only {entries} entries on {pages} pages")));
        }
        if entries > ENTRIES_MAX {
            return Err(endless(format!("it has more than {ENTRIES_MAX} entries")));
        }
        let elapsed = self.begun.elapsed();
        if elapsed > self.deadline + Duration::from_secs(entries / ENTRIES_PER_SECOND_MIN) {
            return Err(endless(format!("it has only {entries} entries after {elapsed:.0?}")));
        }
        Ok(())
    }
}

fn endless(why: String) -> Error {
    Error::Generic { store: "list", source: Box::new(ServerFailure::EndlessList(why)) }
}

impl<S: PaginatedListStore> PagedList<S> {
    fn new(paged: &Paged<S>, prefix: Option<&Path>, has_delimiter: bool) -> Self {
        let prefix = prefix.filter(|prefix| !prefix.as_ref().is_empty());
        Self {
            store: paged.store.clone(),
            prefix: prefix.map(|prefix| format!("{prefix}{DELIMITER}")),
            has_delimiter,
            token: None,
            is_over: false,
            progress: ListProgress::new(paged.deadline),
        }
    }

    /// Returns the next page; `None` after the last.
    async fn next(&mut self) -> Result<Option<ListResult>> {
        if self.is_over {
            return Ok(None);
        }
        let options = PaginatedListOptions {
            delimiter: self.has_delimiter.then_some(DELIMITER.into()),
            page_token: self.token.take(),
            ..PaginatedListOptions::default()
        };
        let page = self.store.list_paginated(self.prefix.as_deref(), options);
        let page = call(page).await?;
        self.token = page.page_token.filter(|token| !token.is_empty());
        self.is_over = self.token.is_none();
        self.progress.note(&page.result, self.token.as_deref())?;
        Ok(Some(page.result))
    }
}

#[async_trait]
impl<S: ObjectStore + PaginatedListStore> ObjectStore for Paged<S> {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let list = PagedList::new(self, prefix, false);
        let pages = stream::try_unfold(list, |mut list| async move {
            Ok::<_, Error>(list.next().await?.map(|page| (page, list)))
        });
        pages.map_ok(|page| stream::iter(page.objects.into_iter().map(Ok))).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut list = PagedList::new(self, prefix, true);
        let (mut objects, mut common_prefixes) = (Vec::new(), BTreeSet::new());
        while let Some(page) = list.next().await? {
            objects.extend(page.objects);
            common_prefixes.extend(page.common_prefixes);
        }
        let common_prefixes = common_prefixes.into_iter().collect();
        let extensions = ::http::Extensions::new();
        Ok(ListResult { objects, common_prefixes, extensions })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: impl IntoIterator<Item = String>) -> ListResult {
        let common_prefixes = names.into_iter().map(Path::from).collect();
        ListResult { objects: Vec::new(), common_prefixes, extensions: ::http::Extensions::new() }
    }

    /// Returns the number of pages after which a list of `pages`, each with its token, is rejected
    /// as endless.
    fn ends_after(pages: impl Iterator<Item = (ListResult, String)>) -> Option<u64> {
        let mut progress = ListProgress::new(Duration::from_secs(3600));
        for (page, token) in pages {
            if let Err(error) = progress.note(&page, Some(&token)) {
                assert!(error.to_string().contains("does not end"), "{error}");
                return Some(progress.pages);
            }
        }
        None
    }

    #[test]
    fn tokens_in_a_circle_of_any_length_are_noticed_and_others_are_none() {
        for before in [0, 1, 5] {
            for length in [1, 2, 3, 10, 64] {
                let tokens = (0..before).chain((0..).map(|at| before + at % length));
                let pages = tokens.enumerate();
                let pages = pages.map(|(at, token)| (page([at.to_string()]), token.to_string()));
                let noticed = ends_after(pages.take(1000)).unwrap();
                assert!(noticed <= 4 * (before + length + 1), "{before} {length}: {noticed}");
            }
        }
        let full = |at: u64| page((0..10).map(|name| format!("{at} {name}")));
        assert_eq!(ends_after((0..5000).map(|at| (full(at), at.to_string()))), None);
    }

    #[test]
    fn pages_that_bring_next_to_nothing_have_an_end() {
        let at = |at: u64, names: Vec<String>| (page(names), at.to_string());
        assert_eq!(ends_after((0..5000).map(|n| at(n, vec![]))), Some(EMPTY_PAGES_MAX + 1));
        let same = (0..5000).map(|n| at(n, vec!["same".to_owned(); 50]));
        assert_eq!(ends_after(same), Some(EMPTY_PAGES_MAX + 6));
        let one = (0..5000).map(|n| at(n, vec![n.to_string()]));
        assert_eq!(ends_after(one), Some(1112));
        // Some servers skip deleted entries.
        let some = (0..5000).map(|n| {
            let count = if n % 500 == 0 { 5000 } else { 0 };
            at(n, (0..count).map(|name| format!("{n} {name}")).collect())
        });
        assert_eq!(ends_after(some), None);
    }

    #[test]
    fn a_list_has_time_for_its_entries() {
        let mut progress = ListProgress::new(Duration::ZERO);
        let names = |count: u64| page((0..count).map(|at| at.to_string()));
        let is_over = |progress: &mut ListProgress, count| {
            std::thread::sleep(Duration::from_millis(2));
            progress.note(&names(count), Some("a")).is_err()
        };
        assert!(is_over(&mut progress, 3));
        let mut progress = ListProgress::new(Duration::ZERO);
        assert!(!is_over(&mut progress, 60_000));
        progress.entries = ENTRIES_MAX + 1;
        progress.landmark = None;
        assert!(progress.note(&names(1), Some("b")).is_err());
    }
}
