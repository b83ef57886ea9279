//! The elements that a replica of an array could hold for its reads: boxes, runs, or points.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_geometry::{Region, Selection};
use bedform_storage::Profile;

use super::bytes_of;
use super::sample::sampled_ratio;
use super::settings::SETTINGS;
use crate::error::{Error, Result};
use crate::optimize::OptimizedSource;
use crate::optimize::reads::{ExactElements, PricedReadKind};
use crate::replica::{AxisRuns, ReplicaElements, SourceObject};
use crate::sidecar::Sidecar;

/// Elements that a replica could hold.
pub(super) struct CandidateElements {
    pub(super) held: ReplicaElements,
    /// The places of points.
    pub(super) places: Option<Arc<Vec<u64>>>,
    /// Numbers of the kinds of reads that decide its layout.
    pub(super) numbers: Vec<usize>,
}

impl CandidateElements {
    fn points(places: Arc<Vec<u64>>, numbers: Vec<usize>) -> Option<Self> {
        let held = ReplicaElements::points(&places)?;
        Some(Self { held, places: Some(places), numbers })
    }
}

/// One array with the kinds of its reads: makes its candidates and chooses its layout.
pub(in crate::optimize) struct ArrayKinds<'a> {
    pub(super) source: &'a OptimizedSource,
    pub(super) array: &'a str,
    pub(super) kinds: &'a [PricedReadKind],
    /// Numbers of the kinds that read this array.
    pub(super) own: Vec<usize>,
    pub(super) shape: Vec<u64>,
    pub(super) item_size: u64,
    pub(super) dims: Vec<String>,
    /// The versions of the array's objects; `None` if they are too many.
    pub(super) objects: Option<Vec<SourceObject>>,
    /// The compression ratio: bytes of elements over encoded bytes, from a sample.
    pub(super) ratio: f64,
    /// Predicted seconds per byte of reading the whole array.
    pub(super) seconds_per_byte: f64,
    pub(super) profile: Profile,
}

impl<'a> ArrayKinds<'a> {
    pub(in crate::optimize) fn new(
        source: &'a OptimizedSource,
        array: &'a str,
        kinds: &'a [PricedReadKind],
    ) -> Result<Self> {
        let own: Vec<usize> =
            (0..kinds.len()).filter(|number| kinds[*number].array == array).collect();
        let first = own.first().map(|number| &kinds[*number]);
        let first = first.ok_or_else(|| Error::invalid("an array without reads"))?;
        let opened = source.store.array(&ObjectPath::parse(array)?)?;
        let raw = bytes_of(&first.array_shape, first.item_size);
        let ratio = sampled_ratio(&opened, first)?;
        let whole = Selection::all(&first.array_shape);
        let seconds = opened.price(&whole)?.seconds;
        let directory = source.sidecar.as_ref().and_then(Sidecar::own_directory);
        let kept = directory.and_then(|directory| Profile::for_path(&directory).ok().flatten());
        Ok(Self {
            source,
            array,
            kinds,
            own,
            shape: first.array_shape.clone(),
            item_size: first.item_size,
            dims: first.dims.clone(),
            objects: opened.object_versions(&whole)?,
            ratio,
            seconds_per_byte: seconds / raw.max(1.0),
            profile: kept.unwrap_or_else(Profile::default_local),
        })
    }

    /// Returns the elements that a replica could hold.
    pub(super) fn elements(&self) -> impl Iterator<Item = CandidateElements> {
        let boxes = self.boxes().into_iter().map(|(region, numbers)| {
            let held = ReplicaElements::region(&region);
            CandidateElements { held, places: None, numbers }
        });
        boxes.chain(self.lists())
    }

    /// Returns the boxes that a replica could hold, each with the kinds that decide its layout. The
    /// boxes are the bounds and the hot region of each kind, and the boxes around several hot
    /// regions.
    fn boxes(&self) -> Vec<(Region, Vec<usize>)> {
        let mut all: Vec<(Region, Vec<usize>)> = Vec::new();
        for &number in &self.boxed() {
            let kind = &self.kinds[number];
            all.push((kind.bounds.clone(), vec![number]));
            all.push((kind.hot.clone(), vec![number]));
        }
        let most: Vec<usize> = self.boxed().into_iter().take(SETTINGS.kinds_together_max).collect();
        for (at, first) in most.iter().enumerate() {
            for second in &most[at + 1..] {
                all.extend(self.together(&[*first, *second]));
            }
        }
        if most.len() > 2 {
            all.extend(self.together(&most));
        }
        let mut boxes: Vec<(Region, Vec<usize>)> = Vec::new();
        all.into_iter().for_each(|one| {
            if !boxes.contains(&one) {
                boxes.push(one);
            }
        });
        boxes
    }

    /// Returns the kinds that may be anywhere in a region, unlike listed reads.
    fn boxed(&self) -> Vec<usize> {
        let own = self.own.iter().copied();
        own.filter(|number| self.kinds[*number].exact.is_none()).collect()
    }

    /// Returns the selections of the listed kinds, each alone and all together.
    fn lists(&self) -> Vec<CandidateElements> {
        let own = self.own.iter();
        let exact = own.filter_map(|number| Some((*number, self.kinds[*number].exact.as_ref()?)));
        let (mut runs, mut points) = (Vec::new(), Vec::new());
        for (number, exact) in exact {
            match exact {
                ExactElements::AxisRuns(of_read) => runs.push((number, of_read)),
                ExactElements::Points(places) => points.push((number, places.clone())),
            }
        }
        let of_runs = |(number, runs): &(usize, &Vec<AxisRuns>)| {
            let held = ReplicaElements::of_runs((*runs).clone(), &self.shape)?;
            Some(CandidateElements { held, places: None, numbers: vec![*number] })
        };
        let of_points = |(number, places): &(usize, Arc<Vec<u64>>)| {
            CandidateElements::points(places.clone(), vec![*number])
        };
        let mut all: Vec<CandidateElements> = runs.iter().filter_map(of_runs).collect();
        all.extend(points.iter().filter_map(of_points));
        all.extend(points_together(&points));
        all.extend(self.rows_together(&runs));
        all
    }

    /// Unites the rows of several reads that differ along a single axis.
    fn rows_together(&self, runs: &[(usize, &Vec<AxisRuns>)]) -> Option<CandidateElements> {
        let (_, first) = runs.first().filter(|_| runs.len() > 1)?;
        let differs = |axis: &usize| runs.iter().any(|(_, runs)| runs[*axis] != first[*axis]);
        let along: Vec<usize> = (0..first.len()).filter(differs).collect();
        let &[axis] = along.as_slice() else { return None };
        let every = runs.iter().flat_map(|(_, runs)| runs[axis].iter().copied());
        let mut all = (*first).clone();
        all[axis] = union_of(every.collect());
        let numbers = runs.iter().map(|(number, _)| *number).collect();
        let held = ReplicaElements::of_runs(all, &self.shape)?;
        Some(CandidateElements { held, places: None, numbers })
    }

    /// Returns the box around the hot regions of these kinds.
    fn together(&self, numbers: &[usize]) -> Option<(Region, Vec<usize>)> {
        let hot = numbers.iter().map(|number| self.kinds[*number].hot.clone());
        let around = hot.reduce(|one, other| one.bounding(&other).unwrap_or(one))?;
        Some((around, numbers.to_vec()))
    }
}

/// Unites the points of several reads, each once.
fn points_together(points: &[(usize, Arc<Vec<u64>>)]) -> Option<CandidateElements> {
    if points.len() < 2 {
        return None;
    }
    let mut every: Vec<u64> =
        points.iter().flat_map(|(_, places)| places.iter().copied()).collect();
    every.sort_unstable();
    every.dedup();
    let numbers = points.iter().map(|(number, _)| *number).collect();
    CandidateElements::points(Arc::new(every), numbers)
}

/// Returns sorted, disjoint runs that cover every position of `runs`.
fn union_of(mut runs: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    runs.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (first, count) in runs {
        match all.last_mut() {
            Some((start, length)) if *start + *length >= first => {
                *length = (*length).max(first + count - *start);
            }
            _ => all.push((first, count)),
        }
    }
    all
}
