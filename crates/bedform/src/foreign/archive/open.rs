//! Archives, opened: by what is kept of them, or by their files.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_format::Limits;
use bedform_format::archive::{ArchiveMap, ArchivedFile};
use bedform_format::checksum::Fingerprint;
use bedform_format::chunk_map::{ChunkMap, ForeignArray, RefusedMember, SourceVersion};

use super::agree::{Agreement, is_native, joined_axes};
use super::examine::{Examined, TableBudget, changed, examine, in_threads};
use super::forms::{FileVariables, Forms};
use super::member::OpenFiles;
use super::place::{ArchiveFiles, shown};
use super::{Archive, ArchiveOptions, JoinedAxis, VariableForm};
use crate::cache::{CacheHandle, PlaceId};
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;
use crate::foreign::attributes::dimension_names;
use crate::foreign::opening::unknown_map;
use crate::foreign::variable::{decoding, layout_of};
use crate::opening::add_kept_profile;
use crate::options::{Freshness, OpenOptions};
use crate::replica::Replicas;
use crate::sidecar::{Helper, Sidecar, SidecarName};

/// Bytes of the chunk tables that are looked for when an archive is opened, and chunks of each.
const TABLE_BYTES_MAX: u64 = 32 << 20;

// Of whichever files it has: that of each file says what of it counts.
impl Helper for ArchiveMap {
    const BYTES_MAX: u64 = 256 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        Self::encode(self).ok()
    }

    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        Self::decode(bytes, limits).ok()
    }
}

/// The name of what is kept in the sidecar: of another dimension it is another archive.
fn name_of(dimension: Option<&str>) -> String {
    let Some(dimension) = dimension else { return "archive".to_owned() };
    let mut fingerprint = Fingerprint::new();
    fingerprint.update(dimension.as_bytes());
    format!("archive-{:032x}", fingerprint.finish())
}

impl ForeignFile {
    /// Opens the files at `paths` as one, which are joined in this order along one dimension.
    ///
    /// # Errors
    /// `InvalidArgument` if the files do not fit together, or it is not clear along which dimension, with the first
    /// file that is at fault; `NotFound`, `Unsupported`, `Corrupt` as [`ForeignFile::open`], of any file;
    /// `Interrupted`.
    pub fn open_archive(
        paths: &[PathBuf],
        how: &ArchiveOptions<'_>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let mut options = options.clone();
        let places = ArchiveFiles::find(paths, &options)?;
        if options.sidecar.is_none() {
            options.sidecar = Sidecar::find(&SidecarName::of_archive(&places.files[0].path), None)?;
        }
        let replicas = Replicas::new(&options);
        // Those of the archive are none of its first file.
        options.replicas = false;
        add_kept_profile(&mut options, &places.files[0].path);
        let opening = Opening { places: &places, how, options: &options };
        let first = opening.first()?;
        let ArchiveMap { dimension, forms, files } = opening.map(&first)?;
        let joined = joined(shown(paths), first, places, (dimension, forms, files), &options)?;
        Ok(Self { replicas, ..joined })
    }
}

/// An archive on its way.
struct Opening<'a> {
    places: &'a ArchiveFiles,
    how: &'a ArchiveOptions<'a>,
    options: &'a OpenOptions,
}

impl Opening<'_> {
    /// The first file by itself.
    fn first(&self) -> Result<ForeignFile> {
        let place = &self.places.files[0];
        let first = match ForeignFile::find(&place.path, false, self.options)? {
            Some(first) => first,
            None => {
                let map = self.map_of_library(0)?;
                ForeignFile::open_with_map(&place.path, map, false, self.options)?
            }
        };
        match first.map.source == place.source {
            true => Ok(first),
            false => Err(changed(&place.path)),
        }
    }

    /// The chunk map of a file that only its library understands.
    fn map_of_library(&self, file: usize) -> Result<ChunkMap> {
        let path = &self.places.files[file].path;
        let Some(make_map) = self.how.make_map else {
            return Err(unknown_map(path));
        };
        let map = make_map(path)?;
        match map.source == self.places.files[file].source {
            true => Ok(map),
            false => Err(changed(path)),
        }
    }

    /// What is known of all files: what is kept of those that are as they were, and what the others say.
    fn map(&self, first: &ForeignFile) -> Result<ArchiveMap> {
        let name = name_of(self.how.dimension);
        let sidecar = self.options.sidecar.as_ref();
        let mut kept = sidecar.and_then(|sidecar| {
            let kept = sidecar.load(&name, &SourceVersion::default(), &self.options.limits)?;
            self.usable(kept, first)
        });
        let known = kept.as_ref().map_or(0, |kept| kept.files.len());
        // Files may have come, or gone, since.
        if let Some(kept) = &mut kept {
            kept.files.resize(self.places.files.len(), ArchivedFile::default());
        }
        let is_new = |(file, _): &(usize, _)| {
            let state = &self.places.files[*file].source;
            kept.as_ref().is_none_or(|kept| *file >= known || kept.files[*file].source != *state)
        };
        let files = self.places.files.iter().enumerate();
        let new: Vec<usize> = files.filter(is_new).map(|(file, _)| file).collect();
        match kept {
            Some(map) if new.is_empty() => Ok(map),
            kept => {
                let map = self.examined(first, kept, &new)?;
                if let Some(sidecar) = sidecar {
                    sidecar.save(&name, &map);
                }
                Ok(map)
            }
        }
    }

    /// What was kept, if it is of files that the first one is still of.
    fn usable(&self, map: ArchiveMap, first: &ForeignFile) -> Option<ArchiveMap> {
        let is_first = map.files.first()?.source == self.places.files[0].source;
        let path = &self.places.files[0].path;
        let joined = joined_axes(&first.map.arrays, &map.dimension, path).ok()?;
        let is_of_variables = map.files.iter().all(|file| {
            file.variables.len() == joined.len()
                && joined.iter().zip(&file.variables).all(|((number, _), variable)| {
                    let form = map.forms.get(variable.form as usize);
                    form.is_some_and(|form| form.path == first.map.arrays[*number].path)
                })
        });
        let texts = map.forms.iter().map(serde_json::to_string);
        let texts: HashSet<String> = texts.collect::<std::result::Result<_, _>>().ok()?;
        let has_each_once = texts.len() == map.forms.len();
        (is_first && is_of_variables && has_each_once).then_some(map)
    }

    /// What is known when the files `new` have been looked at; `kept` has the others.
    fn examined(
        &self,
        first: &ForeignFile,
        kept: Option<ArchiveMap>,
        new: &[usize],
    ) -> Result<ArchiveMap> {
        let mut forms = Forms::of_first(&first.map);
        let mut files = vec![ArchivedFile::default(); self.places.files.len()];
        let mut known = None;
        if let Some(mut kept) = kept {
            new.iter().for_each(|file| kept.files[*file] = ArchivedFile::default());
            // What other files had says nothing of these.
            let kept = compacted(kept);
            add_kept(&mut forms, kept.forms, &kept.files)?;
            (files, known) = (kept.files, Some(kept.dimension));
        }
        let forms = Mutex::new(forms);
        let found = self.look_at(new, first, &forms)?;
        let forms = forms.into_inner().unwrap_or_else(PoisonError::into_inner);
        let agreement = Agreement { first: &first.map.arrays, forms: &forms, places: self.places };
        let dimension = match self.how.dimension {
            Some(dimension) => dimension.to_owned(),
            None => agreement.dimension()?,
        };
        // Of the files that are kept it is known how they are joined along another one.
        if known.is_some_and(|known| known != dimension) {
            let all: Vec<usize> = (0..self.places.files.len()).collect();
            return self.examined(first, None, &all);
        }
        let path = &self.places.files[0].path;
        let joined = joined_axes(&first.map.arrays, &dimension, path)?;
        let pairs: Vec<_> = new.iter().copied().zip(&found).collect();
        agreement.check(&dimension, &pairs)?;
        for (file, found) in pairs {
            // Checked to be there.
            let variables = joined.iter().map(|(number, _)| found[*number].clone());
            let variables = variables.map(Option::unwrap_or_default).collect();
            let source = self.places.files[file].source.clone();
            files[file] = ArchivedFile { source, variables };
        }
        let forms = forms.all.into_iter().map(|form| form.array).collect();
        Ok(compacted(ArchiveMap { dimension, forms, files }))
    }

    /// The variables of the files `new`.
    fn look_at(
        &self,
        new: &[usize],
        first: &ForeignFile,
        forms: &Mutex<Forms>,
    ) -> Result<Vec<FileVariables>> {
        let lock = || forms.lock().unwrap_or_else(PoisonError::into_inner);
        let variables = lock().first.clone();
        let take = |examined, file| {
            let described = variables.described(examined)?;
            Ok(lock().take(described, file))
        };
        let tables = TableBudget::new(TABLE_BYTES_MAX);
        let found = in_threads(new.len(), self.how.progress, |number| {
            let file = new[number];
            if file == 0 {
                return take(of_opened(first), 0).map(Some);
            }
            let storage = &**self.places.storage(file);
            let examined = examine(&self.places.files[file], storage, self.options, &tables)?;
            examined.map(|examined| take(examined, file)).transpose()
        })?;
        // The library is asked by this thread, which called.
        let found = found.into_iter().zip(new).map(|(found, file)| match found {
            Some(found) => Ok(found),
            None => take(Examined::whole(self.map_of_library(*file)?), *file),
        });
        found.collect()
    }
}

/// What a file that is open says of its variables.
fn of_opened(file: &ForeignFile) -> Examined {
    let datasets = (0..file.map.arrays.len()).map(|number| file.tables.address(number)).collect();
    Examined { map: (*file.map).clone(), datasets }
}

/// Adds the forms that were kept of these files, each of which is there once, under their numbers.
fn add_kept(forms: &mut Forms, kept: Vec<ForeignArray>, files: &[ArchivedFile]) -> Result<()> {
    let mut users = vec![usize::MAX; kept.len()];
    for (file, found) in files.iter().enumerate().rev() {
        found.variables.iter().for_each(|variable| users[variable.form as usize] = file);
    }
    for (form, file) in kept.into_iter().zip(users) {
        let form = forms.first.candidate(form)?;
        forms.number(form, file);
    }
    Ok(())
}

/// The same with those forms alone that files have.
fn compacted(mut map: ArchiveMap) -> ArchiveMap {
    let mut numbers: Vec<Option<u32>> = vec![None; map.forms.len()];
    let mut used = 0;
    for variable in map.files.iter_mut().flat_map(|file| &mut file.variables) {
        let number = numbers[variable.form as usize].get_or_insert_with(|| {
            used += 1;
            used - 1
        });
        variable.form = *number;
    }
    let mut kept: Vec<(u32, ForeignArray)> = std::mem::take(&mut map.forms)
        .into_iter()
        .zip(numbers)
        .filter_map(|(form, number)| Some((number?, form)))
        .collect();
    kept.sort_unstable_by_key(|(number, _)| *number);
    map.forms = kept.into_iter().map(|(_, form)| form).collect();
    map
}

/// The archive of files that fit together.
fn joined(
    name: String,
    first: ForeignFile,
    places: ArchiveFiles,
    (dimension, forms, files): (String, Vec<ForeignArray>, Vec<ArchivedFile>),
    options: &OpenOptions,
) -> Result<ForeignFile> {
    let found = joined_axes(&first.map.arrays, &dimension, &places.files[0].path)?;
    let starts = starts_of(&found, &forms, &files, &places)?;
    let total = starts.last().copied().unwrap_or(0);
    let map = Arc::new(map_of(&first.map, &dimension, &found, total, &files));
    let axis = |(number, axis): &(usize, usize)| JoinedAxis {
        path: first.map.arrays[*number].path.clone(),
        axis: *axis,
    };
    let joined: Vec<JoinedAxis> = found.iter().map(axis).collect();
    let by_path = joined.iter().map(|joined| joined.path.clone()).zip(0..).collect();
    let forms = forms.into_iter().map(VariableForm::new).collect::<Result<_>>()?;
    // Whichever directories the files lie in: their paths tell them apart.
    let cache = CacheHandle::new(options.cache_bytes, Some(PlaceId::new("files of archives")));
    let archive = Archive {
        name,
        dimension,
        first: first.clone(),
        places,
        files,
        forms,
        joined,
        by_path,
        starts,
        open: OpenFiles::new(options.freshness == Freshness::Read),
        limits: options.limits.clone(),
    };
    Ok(ForeignFile {
        map,
        lookup: Arc::default(),
        tables: Arc::default(),
        cache: Arc::new(cache),
        archive: Some(Arc::new(archive)),
        ..first
    })
}

impl VariableForm {
    fn new(array: ForeignArray) -> Result<Self> {
        let (data_type, layout) = layout_of(&array)?.map_err(|reason| {
            let text = format!("{:?} is read by its own library: {reason}", array.path);
            Error::new(ErrorKind::Unsupported, text)
        })?;
        let decoding = decoding(&array, layout.grid.chunk_shape());
        Ok(Self { array, data_type, layout, decoding })
    }
}

/// Where each file begins along the joined dimension, and where the last one ends.
///
/// # Errors
/// `InvalidArgument` for a file whose variables have several lengths; `LimitExceeded` beyond what can be counted.
fn starts_of(
    joined: &[(usize, usize)],
    forms: &[ForeignArray],
    files: &[ArchivedFile],
    places: &ArchiveFiles,
) -> Result<Vec<u64>> {
    let (mut starts, mut end) = (vec![0], 0_u64);
    for (file, place) in files.iter().zip(&places.files) {
        let lengths = joined.iter().zip(&file.variables).map(|((_, axis), variable)| {
            let form = &forms[variable.form as usize];
            (form.shape[*axis], &form.path)
        });
        let mut lengths = lengths.clone().zip(lengths.skip(1));
        if let Some(((one, path), (other, other_path))) = lengths.find(|(a, b)| a.0 != b.0) {
            return Err(Error::invalid(format!(
                "{}: {path:?} has {one} along the joined dimension, {other_path:?} has {other}",
                place.path.display()
            )));
        }
        let variable = joined.first().zip(file.variables.first());
        let length =
            variable.map_or(0, |((_, axis), variable)| forms[variable.form as usize].shape[*axis]);
        end =
            end.checked_add(length).filter(|end| i64::try_from(*end).is_ok()).ok_or_else(|| {
                let text = format!("{}: more elements than can be counted", place.path.display());
                Error::new(ErrorKind::LimitExceeded, text)
            })?;
        starts.push(end);
    }
    Ok(starts)
}

/// The chunk map of the first file as that of all: joined variables have the length of all files, and those that
/// cannot be joined are refused. Of a joined variable it does not say where its bytes lie.
fn map_of(
    first: &ChunkMap,
    dimension: &str,
    joined: &[(usize, usize)],
    total: u64,
    files: &[ArchivedFile],
) -> ChunkMap {
    let mut map = first.clone();
    map.source = state_of(files);
    for (number, axis) in joined {
        map.arrays[*number].shape[*axis] = total;
    }
    let defined = map.groups.iter_mut().flat_map(|group| &mut group.dimensions);
    defined.filter(|own| own.name == dimension).for_each(|own| own.size = total);
    let arrays = std::mem::take(&mut map.arrays);
    let has_dimension =
        |array: &ForeignArray| dimension_names(array).iter().any(|name| name == dimension);
    let (refused, kept): (Vec<_>, Vec<_>) =
        arrays.into_iter().partition(|array| is_native(array) && has_dimension(array));
    map.arrays = kept;
    for array in refused {
        let (parent, name) = array.path.rsplit_once('/').unwrap_or(("", &array.path));
        let reason = "only the library of its format reads it, which joins no files: open the \
                      files one by one";
        let member = RefusedMember { name: name.to_owned(), reason: reason.to_owned() };
        let group = map.groups.iter_mut().find(|group| group.path == parent);
        group.into_iter().for_each(|group| group.refused.push(member.clone()));
    }
    map
}

/// A state that changes when one of the files does.
fn state_of(files: &[ArchivedFile]) -> SourceVersion {
    let mut fingerprint = Fingerprint::new();
    let mut size = 0_u64;
    for SourceVersion { size: own, modified_ns, changed_ns, identity } in
        files.iter().map(|file| &file.source)
    {
        size = size.saturating_add(*own);
        for number in
            [*own, modified_ns.cast_unsigned(), changed_ns.cast_unsigned(), identity.0, identity.1]
        {
            fingerprint.update(&number.to_le_bytes());
        }
    }
    #[allow(clippy::cast_possible_truncation)]
    let (low, high) = (fingerprint.finish() as u64, (fingerprint.finish() >> 64) as u64);
    SourceVersion {
        size,
        modified_ns: low.cast_signed(),
        changed_ns: high.cast_signed(),
        identity: (files.len() as u64, 0),
    }
}
