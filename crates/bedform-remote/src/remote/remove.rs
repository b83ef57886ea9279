//! Deletion of one object, or of all below a prefix.

use ::object_store::path::Path;
use ::object_store::{Error, ObjectStore, ObjectStoreExt};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::lease::LOCK_NAME;
use super::{growing, runtime};

/// The most objects of one request to delete, where the server has such requests.
const DELETED_TOGETHER: usize = 1000;

/// Deletes all objects below `directory`: parts after their objects, the lock last.
pub(super) async fn remove_below(
    store: &dyn ObjectStore,
    directory: &Path,
) -> std::result::Result<(), Error> {
    let lock = directory.clone().join(LOCK_NAME);
    remove_those(store, directory, &|name| *name != lock && !growing::is_part(name)).await?;
    remove_those(store, directory, &|name| *name != lock).await?;
    remove(store, &lock).await
}

/// Deletes the objects below `directory` that are `wanted`.
async fn remove_those(
    store: &dyn ObjectStore,
    directory: &Path,
    wanted: &(dyn Fn(&Path) -> bool + Sync),
) -> std::result::Result<(), Error> {
    let mut before = Vec::new();
    loop {
        // Listed before the deletion: a list may skip entries if objects are deleted meanwhile.
        let names: Vec<_> = runtime::again(|| {
            let below = store.list(Some(directory)).map_ok(|meta| meta.location);
            let is_wanted = |name: &Path| std::future::ready(wanted(name));
            below.try_filter(is_wanted).take(DELETED_TOGETHER).try_collect()
        })
        .await?;
        // The second case: deleted objects stay in lists for a while.
        if names.is_empty() || names == before {
            return Ok(());
        }
        before.clone_from(&names);
        runtime::again(|| remove_all(store, names.clone())).await?;
    }
}

/// Deletes objects; missing ones are no error.
async fn remove_all(store: &dyn ObjectStore, names: Vec<Path>) -> std::result::Result<(), Error> {
    let names = futures_util::stream::iter(names.into_iter().map(Ok)).boxed();
    let mut deleted = store.delete_stream(names);
    while let Some(outcome) = deleted.next().await {
        match outcome {
            Ok(_) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Deletes an object; a missing one is no error.
pub(super) async fn remove(store: &dyn ObjectStore, name: &Path) -> std::result::Result<(), Error> {
    // Not all clients repeat the request after a lost answer.
    match runtime::again(|| store.delete(name)).await {
        Err(Error::NotFound { .. }) => Ok(()),
        outcome => outcome,
    }
}
