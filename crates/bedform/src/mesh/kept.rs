//! Plotfiles that this process has opened before: their texts are not parsed again while the files
//! are the same.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bedform_format::ObjectPath;
use bedform_format::mesh_replica::MeshFile;
use bedform_storage::Storage;

use super::MeshFacts;
use super::plotfile::LevelText;
use crate::replica::Standing;
use crate::sidecar::source_version;
use crate::threads::per_process::PerProcess;

/// The most plotfiles that are kept, and the most boxes of all of them.
const PLOTFILES_MAX: usize = 8;
const BOXES_MAX: usize = 1 << 20;
/// The least age of a text that is kept. A file that is written twice within the resolution of its
/// times looks the same.
const AGE_MIN: Duration = Duration::from_secs(2);

static OPENED: PerProcess<Mutex<Vec<ParsedPlotfile>>> = PerProcess::new();

/// The texts of a plotfile, parsed.
#[derive(Debug, Clone)]
pub(super) struct ParsedPlotfile {
    pub(super) facts: Arc<MeshFacts>,
    pub(super) levels: Vec<Arc<LevelText>>,
    /// The texts that were read.
    pub(super) texts: Vec<MeshFile>,
}

impl ParsedPlotfile {
    /// Returns the plotfile with this name, parsed by as many threads, if this process has it and its
    /// texts are the same.
    pub(super) fn find(name: &str, threads: usize, storage: &dyn Storage) -> Option<Self> {
        let opened = OPENED.get(|_| Mutex::default());
        let found = {
            let opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
            let is_it = |one: &&Self| one.facts.name == name && one.facts.threads == threads;
            opened.iter().find(is_it).cloned()
        };
        let is_same = |file: &MeshFile| {
            let now = storage.stat(&ObjectPath::parse(&file.path).ok()?).ok()?;
            let standing = Standing::of(Some(&file.version), Some(&source_version(&now)));
            (standing == Standing::Same).then_some(())
        };
        found.filter(|one| one.texts.iter().all(|file| is_same(file).is_some()))
    }

    /// Keeps the plotfile for the next time, in place of the oldest ones.
    pub(super) fn keep(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let newest = i64::try_from(now.saturating_sub(AGE_MIN).as_nanos()).unwrap_or(i64::MAX);
        if self.texts.iter().any(|file| file.version.modified_ns > newest) {
            return;
        }
        let opened = OPENED.get(|_| Mutex::default());
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|one| one.facts.name != self.facts.name);
        opened.push(self.clone());
        let boxes = |opened: &[Self]| opened.iter().map(Self::boxes).sum::<usize>();
        while opened.len() > PLOTFILES_MAX || boxes(&opened) > BOXES_MAX {
            opened.remove(0);
        }
    }

    fn boxes(&self) -> usize {
        self.facts.levels.iter().map(|level| level.boxes.len()).sum()
    }
}
