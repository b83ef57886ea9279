//! Dimension names, found by the rules of the netCDF library.
//!
//! A dimension is a dataset marked as a scale, and variables refer to the scales of their axes. An
//! axis without a reference gets a made-up name, `phony_dim_N`. `N` counts over the whole file, in
//! nested groups before the group that contains them.

use std::collections::{HashMap, HashSet};

use super::walk::{FileWalk, WalkedVariable};
use crate::chunk_map::ForeignDimension;
use crate::hdf5::datatype::{Padding, TypeKind};
use crate::hdf5::error::Result;
use crate::hdf5::{Attribute, Dataset, Dataspace, Hdf5File, Hdf5Value};

const NOT_A_VARIABLE: &[u8] = b"This is a netCDF dimension but not a netCDF variable";
/// The value of a scale's attribute `CLASS`, and its length in bytes with the terminating NUL.
const SCALE: &[u8] = b"DIMENSION_SCALE";
const SCALE_BYTES: u32 = 16;

/// A dimension while the map is built.
pub(super) struct Dimension {
    pub(super) shown: ForeignDimension,
    /// The number that the netCDF library assigned.
    id: Option<i128>,
}

/// For each axis of a variable, the index of its dimension, if the file names one.
type Labels = Vec<Option<usize>>;

impl Dimension {
    /// Returns the dimension that a scale represents; `None` for a scale without axes.
    pub(super) fn of(
        file: &Hdf5File<'_>,
        name: String,
        dataset: &Dataset,
        attributes: &[Attribute],
    ) -> Result<Option<Self>> {
        let Dataspace::Simple { shape, max_shape } = &dataset.space else { return Ok(None) };
        let (Some(&size), Some(max_size)) = (shape.first(), max_shape.first()) else {
            return Ok(None);
        };
        let id = find(attributes, b"_Netcdf4Dimid").map(|id| file.values(id)).transpose()?;
        let id = id.and_then(|values| values.first().and_then(integer));
        let unlimited = max_size.is_none();
        let shown = ForeignDimension { name, size, unlimited, phony: false };
        Ok(Some(Self { shown, id }))
    }
}

/// Returns true if the attributes mark a dimension scale.
pub(super) fn is_scale(attributes: &[Attribute]) -> bool {
    find(attributes, b"CLASS").is_some_and(|class| {
        let is_text = matches!(&class.datatype.kind,
            TypeKind::Text(format) if format.padding == Padding::ZeroTerminated);
        is_text && class.datatype.size == SCALE_BYTES && class.data.starts_with(SCALE)
    })
}

/// Returns true if a scale is a dimension without a variable.
pub(super) fn stands_for_dimension_only(attributes: &[Attribute]) -> bool {
    find(attributes, b"NAME").is_some_and(|name| {
        let is_text = matches!(name.datatype.kind, TypeKind::Text(_));
        is_text && name.space == Dataspace::Scalar && name.data.starts_with(NOT_A_VARIABLE)
    })
}

fn find<'a>(attributes: &'a [Attribute], name: &[u8]) -> Option<&'a Attribute> {
    attributes.iter().find(|attribute| attribute.name == name)
}

fn integer(value: &Hdf5Value) -> Option<i128> {
    if let Hdf5Value::Integer(number) = value { Some(*number) } else { None }
}

/// Assigns dimensions to every variable, and their lengths to the dimensions that can grow.
pub(super) fn name_all(walk: &mut FileWalk<'_, '_>) -> Result {
    let mut namer = Namer::over(walk);
    let mut labels = vec![Labels::new(); walk.variables.len()];
    for group in walk.parents_first() {
        let variables = walk.groups.get(group).map(|group| group.variables.clone());
        for number in variables.unwrap_or_default() {
            let Some(variable) = walk.variables.get(number) else { continue };
            let named = namer.label(walk, variable)?;
            for (size, dimension) in variable.shape.iter().zip(&named) {
                let dimension = dimension.and_then(|at| walk.dimensions.get_mut(at));
                if let Some(dimension) = dimension.filter(|dimension| dimension.shown.unlimited) {
                    dimension.shown.size = dimension.shown.size.max(*size);
                }
            }
            labels.get_mut(number).into_iter().for_each(|slot| slot.clone_from(&named));
        }
    }
    namer.name_group(walk, 0, &labels);
    Ok(())
}

struct Namer {
    by_id: HashMap<i128, usize>,
    next_id: i128,
    /// The dimensions of the current group in file order, by length and by growth.
    by_size: HashMap<(u64, bool), Vec<usize>>,
}

impl Namer {
    fn over(walk: &FileWalk<'_, '_>) -> Self {
        let mut namer = Self { by_id: HashMap::new(), next_id: 0, by_size: HashMap::new() };
        let scales: HashSet<usize> = walk.scales.values().copied().collect();
        let dimensions = walk.dimensions.iter().enumerate();
        for (number, dimension) in dimensions.filter(|(number, _)| scales.contains(number)) {
            let id = dimension.id.unwrap_or(namer.next_id);
            namer.by_id.insert(id, number);
            namer.next_id = namer.next_id.max(id.saturating_add(1));
        }
        namer
    }

    fn label(&self, walk: &FileWalk<'_, '_>, variable: &WalkedVariable) -> Result<Labels> {
        let rank = variable.shape.len();
        let own = walk.scales.get(&variable.address).copied();
        if let Some(own) = own {
            let ids = find(&variable.attributes, b"_Netcdf4Coordinates");
            if let Some(ids) = ids.map(|ids| walk.file.values(ids)).transpose()?
                && ids.len() == rank
            {
                let found = ids.iter().map(|id| self.by_id.get(&integer(id)?).copied());
                return Ok(found.collect());
            }
            let rest = std::iter::repeat_n(None, rank.saturating_sub(1));
            return Ok(std::iter::once(Some(own)).chain(rest).collect());
        }
        let Some(list) = find(&variable.attributes, b"DIMENSION_LIST") else {
            return Ok(vec![None; rank]);
        };
        // If an axis has several scales, the last one counts, as in the netCDF library.
        let last = |axis: &Hdf5Value| match axis {
            Hdf5Value::List(references) => match references.last()? {
                Hdf5Value::Reference(address) => walk.scales.get(address.as_ref()?).copied(),
                _ => None,
            },
            _ => None,
        };
        let named: Labels = walk.file.values(list)?.iter().map(last).collect();
        Ok(if named.len() == rank { named } else { vec![None; rank] })
    }

    fn name_group(&mut self, walk: &mut FileWalk<'_, '_>, number: usize, labels: &[Labels]) {
        let Some(group) = walk.groups.get(number) else { return };
        let (groups, variables) = (group.groups.clone(), group.variables.clone());
        for inner in groups {
            self.name_group(walk, inner, labels);
        }
        self.take_sizes(walk, number);
        for at in variables {
            if let Some(labels) = labels.get(at) {
                self.name_variable(walk, number, at, labels);
            }
        }
    }

    fn take_sizes(&mut self, walk: &FileWalk<'_, '_>, group: usize) {
        self.by_size.clear();
        for at in walk.groups.get(group).into_iter().flat_map(|group| &group.dimensions) {
            if let Some(dimension) = walk.dimensions.get(*at) {
                let size = (dimension.shown.size, dimension.shown.unlimited);
                self.by_size.entry(size).or_default().push(*at);
            }
        }
    }

    fn name_variable(
        &mut self,
        walk: &mut FileWalk<'_, '_>,
        group: usize,
        number: usize,
        labels: &Labels,
    ) {
        let Some(variable) = walk.variables.get(number) else { return };
        let own_shape = variable.shape.clone();
        let growing: Vec<bool> = match &variable.dataset.space {
            Dataspace::Simple { max_shape, .. } => max_shape.iter().map(Option::is_none).collect(),
            _ => Vec::new(),
        };
        let mut taken: Vec<usize> = Vec::new();
        let mut shape = Vec::new();
        for ((size, label), grows) in own_shape.iter().zip(labels).zip(growing) {
            let dimension = match label {
                Some(dimension) => *dimension,
                None => self.phony(walk, group, *size, *size == 0 || grows, &taken),
            };
            let shown = walk.dimensions.get(dimension).map(|dimension| &dimension.shown);
            shape.push(shown.filter(|shown| shown.unlimited).map_or(*size, |shown| shown.size));
            taken.push(dimension);
        }
        if let Some(variable) = walk.variables.get_mut(number) {
            variable.unlabeled = !labels.is_empty() && labels.iter().all(Option::is_none);
            variable.shape = shape;
            variable.dimensions = taken;
        }
    }

    /// Returns an unnamed dimension of the group that fits the axis; makes one if there is none.
    fn phony(
        &mut self,
        walk: &mut FileWalk<'_, '_>,
        group: usize,
        size: u64,
        unlimited: bool,
        taken: &[usize],
    ) -> usize {
        let name_of = |at: &usize| walk.dimensions.get(*at).map(|found| &found.shown.name);
        let is_free = |at: &&usize| taken.iter().all(|other| name_of(other) != name_of(at));
        let of_size = self.by_size.entry((size, unlimited)).or_default();
        if let Some(known) = of_size.iter().find(is_free) {
            return *known;
        }
        let name = format!("phony_dim_{}", self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        let shown = ForeignDimension { name, size, unlimited, phony: true };
        let number = walk.dimensions.len();
        of_size.push(number);
        walk.dimensions.push(Dimension { shown, id: None });
        walk.groups.get_mut(group).into_iter().for_each(|group| group.dimensions.push(number));
        number
    }
}
