//! Opening an archive: by its kept map, or by its files.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_format::Limits;
use bedform_format::archive::{ArchiveMap, ArchivedFile};
use bedform_format::checksum::Fingerprint;
use bedform_format::chunk_map::{ChunkMap, ForeignArray, RefusedMember, SourceVersion};
use bedform_storage::Object;

use super::agree::{
    Agreement, is_native, joined_axes, no_dimension, only_one, unlimited_dimension,
};
use super::compare::{Comparison, ComparisonResult, differing_dimensions, joined_coordinate};
use super::examine::{ExaminedFileMap, STOPPED, TableBudget, changed, examine, in_threads};
use super::forms::{FileVariables, Forms};
use super::meaning::text;
use super::member::OpenFiles;
use super::place::{ArchiveFiles, FilePlace, shown};
use super::{
    Archive, ArchiveOptions, Compat, FileOrder, JoinOptions, JoinedAxis, VariableForm, order,
};
use crate::cache::{CacheHandle, PlaceId, is_coarsely_young};
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;
use crate::foreign::attributes::dimension_names;
use crate::foreign::opening::unknown_map;
use crate::foreign::source_version;
use crate::foreign::tables::is_left_out;
use crate::foreign::variable::{decoding, layout_of};
use crate::opening::add_kept_profile;
use crate::options::{Freshness, OpenOptions};
use crate::replica::Replicas;
use crate::sidecar::{Helper, Sidecar, SidecarName};
use crate::threads::workers::check_cancelled;

/// The most bytes of chunk tables that are read when an archive is opened.
const TABLE_BYTES_MAX: u64 = 32 << 20;

// Not bound to one source version: the map records the state of each file.
impl Helper for ArchiveMap {
    const BYTES_MAX: u64 = 256 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        Self::encode(self).ok()
    }

    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        Self::decode(bytes, limits).ok()
    }
}

/// Returns the name of the archive's helper file: the same files joined in another way are another
/// archive.
fn name_of(join: &JoinOptions) -> String {
    let is_override = join.compat == Compat::Override;
    if join.dimension.is_none() && !is_override {
        return "archive".to_owned();
    }
    let mut fingerprint = Fingerprint::new();
    fingerprint.update(join.dimension.as_deref().unwrap_or_default().as_bytes());
    if is_override {
        fingerprint.update(b"\0override");
    }
    format!("archive-{:032x}", fingerprint.finish())
}

impl ForeignFile {
    /// Opens the files at `paths` as one, joined along one dimension.
    ///
    /// # Errors
    /// `InvalidArgument` if the files do not fit together, or the joined dimension is unclear,
    /// naming the first file at fault; `NotFound`, `Unsupported`, `Corrupt` as
    /// [`ForeignFile::open`], of any file; `Interrupted`.
    pub fn open_archive(
        paths: &[PathBuf],
        how: &ArchiveOptions<'_>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let mut options = options.clone();
        let mut places = ArchiveFiles::find(paths, &options)?;
        if options.sidecar.is_none() {
            options.sidecar = Sidecar::find(&SidecarName::of_archive(&places.files[0].path), None)?;
        }
        let replicas = Replicas::new(&options);
        // Replicas of the archive are not those of its first file.
        options.replicas = false;
        add_kept_profile(&mut options, &places.files[0].path);
        let (first, map) = known_files(&mut places, how, &options)?;
        if how.join.compat == Compat::Equals {
            let arrays = &first.map.arrays;
            let coordinate = joined_coordinate(arrays, &map.dimension);
            let units = coordinate.and_then(|number| text(&arrays[number], "units"));
            let labels = (map.dimension.as_str(), units.as_deref());
            order::check(labels, &map.files, &places, how.join.order)?;
        }
        let is_sorted = how.join.order == FileOrder::ByCoordinate && order::is_labelled(&map.files);
        let joined = joined(shown(paths), first, places, (map, is_sorted), &options)?;
        Ok(Self { replicas, ..joined })
    }
}

/// Opens the first file and returns the map of all, from the sidecar or from the files. Sorts
/// `places` into the order in which the files are joined.
fn known_files(
    places: &mut ArchiveFiles,
    how: &ArchiveOptions<'_>,
    options: &OpenOptions,
) -> Result<(ForeignFile, ArchiveMap)> {
    let (name, sidecar) = (name_of(&how.join), options.sidecar.as_ref());
    let is_sorted = how.join.order == FileOrder::ByCoordinate;
    let mut kept: Option<ArchiveMap> =
        sidecar.and_then(|sidecar| sidecar.load(&name, &SourceVersion::default(), &options.limits));
    if let Some(kept) = kept.as_ref().filter(|_| is_sorted) {
        places.arrange(&order_of_kept(kept, places));
    }
    let mut may_sort = is_sorted;
    loop {
        let opening = ArchiveOpening { places, how, options };
        let first = opening.first()?;
        let (mut map, mut is_new) = opening.map(&first, kept.take())?;
        let own: Vec<usize> = (0..map.files.len()).collect();
        let order = match may_sort {
            true => order::sorted(&map.files, &places.given()),
            false => own.clone(),
        };
        let is_first = order.first() == own.first();
        if order != own {
            places.arrange(&order);
            map.files = order.iter().map(|file| map.files[*file].clone()).collect();
            is_new = true;
        }
        if is_first {
            // A file this young may be another file later, with the same version.
            let is_lasting =
                !map.files.iter().any(|file| is_coarsely_young(&file.source, places.found_at));
            if let Some(sidecar) = sidecar.filter(|_| is_new && is_lasting) {
                sidecar.save(&name, &map);
            }
            return Ok((first, map));
        }
        // Another file is now the first one: all are compared with that.
        may_sort = false;
    }
}

/// Returns the numbers of the files in the order of the kept map, with new ones at the end.
fn order_of_kept(kept: &ArchiveMap, places: &ArchiveFiles) -> Vec<usize> {
    let known = numbers_by_state(&kept.files);
    let mut order: Vec<usize> = (0..places.files.len()).collect();
    let at = |file: &usize| known.get(&key_of(&places.files[*file].source)).copied();
    order.sort_by_key(|file| at(file).unwrap_or(usize::MAX));
    order
}

/// The fields of a [`SourceVersion`] as a key: size, times in nanoseconds, identity.
type StateKey = (u64, i64, i64, (u64, u64));

fn key_of(state: &SourceVersion) -> StateKey {
    (state.size, state.modified_ns, state.changed_ns, state.identity)
}

fn numbers_by_state(files: &[ArchivedFile]) -> HashMap<StateKey, usize> {
    // Files with one state are one file, so the first counts.
    files.iter().enumerate().rev().map(|(at, file)| (key_of(&file.source), at)).collect()
}

/// The inputs of opening an archive.
struct ArchiveOpening<'a> {
    places: &'a ArchiveFiles,
    how: &'a ArchiveOptions<'a>,
    options: &'a OpenOptions,
}

impl ArchiveOpening<'_> {
    /// Opens the first file alone.
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

    /// Makes the chunk map of a file that only its library understands.
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

    /// Returns the map of all files: kept entries of unchanged files, and examined ones of the
    /// others. The flag says whether some were examined.
    fn map(&self, first: &ForeignFile, kept: Option<ArchiveMap>) -> Result<(ArchiveMap, bool)> {
        let kept = kept.and_then(|kept| self.usable(kept, first)).map(|kept| self.matched(kept));
        let kept = kept.filter(|kept| self.says_dimension(kept, first));
        let is_new = |(file, _): &(usize, _)| {
            let state = &self.places.files[*file].source;
            kept.as_ref().is_none_or(|kept| kept.files[*file].source != *state)
        };
        let files = self.places.files.iter().enumerate();
        let new: Vec<usize> = files.filter(is_new).map(|(file, _)| file).collect();
        match kept {
            Some(map) if new.is_empty() => Ok((map, false)),
            kept => Ok((self.examined(first, kept, &new)?, true)),
        }
    }

    /// Returns true if the kept files determine the joined dimension: the files that differed from
    /// the first may be gone.
    fn says_dimension(&self, kept: &ArchiveMap, first: &ForeignFile) -> bool {
        let path = &self.places.files[0].path;
        if self.how.join.dimension.is_some()
            || unlimited_dimension(&first.map.arrays, path).is_ok_and(|found| found.is_some())
        {
            return true;
        }
        let Ok(joined) = joined_axes(&first.map.arrays, &kept.dimension, path) else {
            return false;
        };
        let along = |file: &ArchivedFile| {
            let (variable, (_, axis)) = (file.variables.first()?, joined.first()?);
            Some((kept.forms[variable.form as usize].shape[*axis], file.span))
        };
        let known = |file: &&ArchivedFile| !file.variables.is_empty();
        kept.files.iter().skip(1).filter(known).any(|file| along(file) != along(&kept.files[0]))
    }

    /// Returns the map with its files in the order of `places`, and an empty entry for each unknown
    /// file.
    fn matched(&self, mut kept: ArchiveMap) -> ArchiveMap {
        let known = numbers_by_state(&kept.files);
        let file_at = |place: &FilePlace| {
            let number = known.get(&key_of(&place.source));
            number.map(|number| kept.files[*number].clone()).unwrap_or_default()
        };
        let files = self.places.files.iter().map(file_at).collect();
        kept.files = files;
        kept
    }

    /// Returns the kept map if its first file is unchanged and still first, every file has the joined
    /// variables of that file, and no form is listed twice.
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

    /// Returns the map after examining the files `new`; `kept` has the others.
    fn examined(
        &self,
        first: &ForeignFile,
        kept: Option<ArchiveMap>,
        new: &[usize],
    ) -> Result<ArchiveMap> {
        let of_first = of_opened(first)?;
        let dimension = self.dimension(&of_first, kept.as_ref())?;
        // The kept map describes the files for another joined dimension.
        if kept.as_ref().is_some_and(|kept| kept.dimension != dimension) {
            let all: Vec<usize> = (0..self.places.files.len()).collect();
            return self.examined(first, None, &all);
        }
        let mut forms = Forms::of_first(&first.map);
        let mut files = vec![ArchivedFile::default(); self.places.files.len()];
        if let Some(kept) = kept {
            // Forms of other files do not count for these.
            let kept = compacted(kept);
            add_kept(&mut forms, kept.forms, &kept.files)?;
            files = kept.files;
        }
        let comparison = Comparison::new(
            &of_first,
            (self.file(0), new.len()),
            &dimension,
            (self.how.join.compat, &self.options.limits),
        )?;
        let forms = Mutex::new(forms);
        let found = self.look_at(new, &of_first, &comparison, &forms)?;
        let forms = forms.into_inner().unwrap_or_else(PoisonError::into_inner);
        let arrays = comparison.arrays();
        let joined = joined_axes(arrays, &dimension, &self.places.files[0].path)?;
        let agreement = Agreement { first: arrays, forms: &forms, places: self.places };
        let examined = new.iter().zip(&found);
        let examined = examined
            .map(|(file, (variables, compared))| (*file, variables, compared.problem.as_ref()));
        agreement.check(&dimension, &examined.collect::<Vec<_>>())?;
        for (&file, (found, compared)) in new.iter().zip(found) {
            // The check above ensures that each is present.
            let variables = joined.iter().map(|(number, _)| found[*number].clone());
            let variables = variables.map(Option::unwrap_or_default).collect();
            let source = self.places.files[file].source.clone();
            let ComparisonResult { span, differing, .. } = compared;
            files[file] = ArchivedFile { source, variables, span, differing };
        }
        let forms = forms.all.into_iter().map(|form| form.array).collect();
        Ok(compacted(ArchiveMap { dimension, forms, files }))
    }

    /// Returns the joined dimension: the given one, the one that can grow, or the one whose labels
    /// differ between the first file and another.
    ///
    /// # Errors
    /// `InvalidArgument` if it is unclear.
    fn dimension(&self, first: &ExaminedFileMap, kept: Option<&ArchiveMap>) -> Result<String> {
        if let Some(given) = &self.how.join.dimension {
            return Ok(given.clone());
        }
        let path = &self.places.files[0].path;
        if let Some(found) = unlimited_dimension(&first.map.arrays, path)? {
            return Ok(found);
        }
        if let Some(kept) = kept {
            return Ok(kept.dimension.clone());
        }
        let tables = TableBudget::new(0);
        for file in 1..self.places.files.len() {
            check_cancelled(STOPPED)?;
            let other = self.examined_file(file, &tables)?;
            let found = differing_dimensions(first, &other, &self.options.limits);
            let found = found.map_err(|error| error.at(self.file(file)))?;
            let files = format!("{} and {}", self.file(0), self.file(file));
            if let Some(found) = only_one(found, "the files differ in", &files)? {
                return Ok(found);
            }
        }
        Err(no_dimension(path))
    }

    fn file(&self, number: usize) -> String {
        self.places.files[number].path.display().to_string()
    }

    /// Examines a file by our parser, or else by its library.
    fn examined_file(&self, file: usize, tables: &TableBudget) -> Result<ExaminedFileMap> {
        let (place, storage) = (&self.places.files[file], &**self.places.storage(file));
        match examine(place, storage, self.options, tables)? {
            Some(examined) => Ok(examined),
            None => self.examined_by_library(file),
        }
    }

    fn examined_by_library(&self, file: usize) -> Result<ExaminedFileMap> {
        let map = self.map_of_library(file)?;
        let place = &self.places.files[file];
        let object: Arc<dyn Object> = Arc::from(self.places.storage(file).open(&place.name)?);
        match source_version(object.version()) == place.source {
            true => Ok(ExaminedFileMap::whole(map, object)),
            false => Err(changed(&place.path)),
        }
    }

    /// Examines the files `new` and compares them with the first.
    fn look_at(
        &self,
        new: &[usize],
        first: &ExaminedFileMap,
        comparison: &Comparison,
        forms: &Mutex<Forms>,
    ) -> Result<Vec<(FileVariables, ComparisonResult)>> {
        let lock = || forms.lock().unwrap_or_else(PoisonError::into_inner);
        let variables = lock().first.clone();
        // Only these fields can be shared between threads.
        let (places, options) = (self.places, self.options);
        let take = |mut examined: ExaminedFileMap, number: usize| {
            let file = new[number];
            let compared = comparison.compare(&mut examined, number);
            let compared = compared.map_err(|error| error.at(places.files[file].path.display()))?;
            let described = variables.described(examined)?;
            Ok((lock().take(described, file), compared))
        };
        let tables = TableBudget::new(TABLE_BYTES_MAX);
        let found = in_threads(new.len(), self.how.progress, |number| {
            let file = new[number];
            if file == 0 {
                let (own, compared) = comparison.of_first(first)?;
                return Ok(Some((lock().take(variables.described(own)?, 0), compared)));
            }
            let examined = examine(&places.files[file], &**places.storage(file), options, &tables)?;
            examined.map(|examined| take(examined, number)).transpose()
        })?;
        // The library is called on this thread, the caller's.
        let found = found.into_iter().enumerate().map(|(number, found)| match found {
            Some(found) => Ok(found),
            None => take(self.examined_by_library(new[number])?, number),
        });
        found.collect()
    }
}

/// Returns the variables of an opened file.
fn of_opened(file: &ForeignFile) -> Result<ExaminedFileMap> {
    let address = |(number, array): (usize, &ForeignArray)| {
        file.tables.address(number).filter(|_| is_left_out(array))
    };
    let datasets = file.map.arrays.iter().enumerate().map(address).collect();
    Ok(ExaminedFileMap { map: (*file.map).clone(), datasets, object: file.object(true)? })
}

/// Adds the kept forms of these files, each of which is there once, under their numbers.
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

/// Returns the map with only those forms that files use.
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

/// Makes the archive of files that fit together.
fn joined(
    name: String,
    first: ForeignFile,
    places: ArchiveFiles,
    (known, is_sorted): (ArchiveMap, bool),
    options: &OpenOptions,
) -> Result<ForeignFile> {
    let ArchiveMap { dimension, forms, files } = known;
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
    // The paths identify the files, in any directories.
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
        is_sorted,
        open: OpenFiles::new(options.freshness == Freshness::Read, options.limits.objects_open_max),
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

/// Returns the start of each file along the joined dimension, and the end of the last one.
///
/// # Errors
/// `InvalidArgument` for a file whose variables have several lengths; `LimitExceeded` beyond
/// countable elements.
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

/// Returns the chunk map of the first file as that of all. Joined variables have the length of all
/// files; variables that cannot be joined are refused. The places of a joined variable's bytes are
/// not in it.
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

/// Returns a state that changes when one of the files does.
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
