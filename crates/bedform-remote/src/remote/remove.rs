//! Objects are removed: one, or all below a prefix.

use ::object_store::path::Path;
use ::object_store::{Error, ObjectStore, ObjectStoreExt};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::lease::LOCK_NAME;
use super::{growing, runtime};

/// Objects that are deleted with one request, where the server can.
const DELETED_TOGETHER: usize = 1000;

/// Removes all objects below `directory`: parts behind the objects that they are of, its lock last.
pub(super) async fn remove_below(
    store: &dyn ObjectStore,
    directory: &Path,
) -> std::result::Result<(), Error> {
    let lock = directory.clone().join(LOCK_NAME);
    remove_those(store, directory, &|name| *name != lock && !growing::is_part(name)).await?;
    remove_those(store, directory, &|name| *name != lock).await?;
    remove(store, &lock).await
}

/// Removes the objects below `directory` that are `wanted`.
async fn remove_those(
    store: &dyn ObjectStore,
    directory: &Path,
    wanted: &(dyn Fn(&Path) -> bool + Sync),
) -> std::result::Result<(), Error> {
    let mut before = Vec::new();
    loop {
        // Listed before they are deleted: a list that is deleted from may skip some.
        let names: Vec<_> = runtime::again(|| {
            let below = store.list(Some(directory)).map_ok(|meta| meta.location);
            let is_wanted = |name: &Path| std::future::ready(wanted(name));
            below.try_filter(is_wanted).take(DELETED_TOGETHER).try_collect()
        })
        .await?;
        // Or those that are gone are listed for a while yet.
        if names.is_empty() || names == before {
            return Ok(());
        }
        before.clone_from(&names);
        runtime::again(|| remove_all(store, names.clone())).await?;
    }
}

/// Removes objects, there or not.
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

/// Removes an object, there or not.
pub(super) async fn remove(store: &dyn ObjectStore, name: &Path) -> std::result::Result<(), Error> {
    // Not all clients ask again where the answer is lost.
    match runtime::again(|| store.delete(name)).await {
        Err(Error::NotFound { .. }) => Ok(()),
        outcome => outcome,
    }
}
