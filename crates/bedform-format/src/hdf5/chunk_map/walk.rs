//! The groups and variables of a file, without leaving it: what names another file is refused.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::dimensions::{self, Dimension};
use super::listing::Listing;
use super::named_types::NamedTypes;
use crate::Limits;
use crate::chunk_map::{ForeignDimension, RefusedMember};
use crate::hdf5::error::{Hdf5Error, Result};
use crate::hdf5::source::ANNOUNCED_MAX;
use crate::hdf5::{
    Attribute, Dataset, Dataspace, Hdf5File, Layout, Link, LinkTarget, Object, ObjectKind,
};
use crate::netcdf_classic::shown;
use crate::path::PATH_BYTES_MAX;
use crate::path::SEGMENT_BYTES_MAX;

/// Groups of one file, counted as often as they have names.
const GROUPS_MAX: usize = 100_000;
/// Groups within groups.
const DEPTH_MAX: usize = 64;
/// Variables of one file.
const VARIABLES_MAX: usize = 1_000_000;
/// Bytes that the header of most objects has at most.
const HEADER_BYTES: u64 = 2048;
/// Soft links, one behind another.
const SOFT_LINKS_MAX: usize = 16;
/// Bytes of an array: what a signed offset of the system can say.
const ARRAY_BYTES_MAX: u64 = i64::MAX as u64;
/// What the netCDF library puts before the name of a variable that is not the coordinate of the
/// dimension of the same name.
const NON_COORDINATE: &[u8] = b"_nc4_non_coord_";

/// A group on its way into the map.
pub(super) struct Group {
    pub(super) path: String,
    /// The last part of its path as the file has it.
    name: Vec<u8>,
    pub(super) attributes: Vec<Attribute>,
    /// Numbers of its dimensions, variables and groups.
    pub(super) dimensions: Vec<usize>,
    pub(super) variables: Vec<usize>,
    pub(super) groups: Vec<usize>,
    pub(super) refused: Vec<RefusedMember>,
}

/// A dataset on its way into the map.
pub(super) struct Variable {
    pub(super) path: String,
    /// The last part of its path as the file has it.
    name: Vec<u8>,
    /// Address of its object.
    pub(super) address: u64,
    pub(super) dataset: Dataset,
    pub(super) attributes: Vec<Attribute>,
    /// Shape as NetCDF sees it; along a dimension that can grow, the dimension's length.
    pub(super) shape: Vec<u64>,
    /// Numbers of the dimensions of its axes.
    pub(super) dimensions: Vec<usize>,
    pub(super) unlabeled: bool,
}

/// What a walk over a file has found.
pub(super) struct Walk<'f, 'r> {
    pub(super) file: &'f Hdf5File<'r>,
    /// The root first.
    pub(super) groups: Vec<Group>,
    pub(super) variables: Vec<Variable>,
    pub(super) dimensions: Vec<Dimension>,
    /// The dimension of each dataset that is a scale, by address.
    pub(super) scales: HashMap<u64, usize>,
    pub(super) named_types: NamedTypes,
    listings: HashMap<u64, Rc<Listing>>,
    /// Bytes of metadata that may still be kept: an object of many names is kept for each.
    bytes_left: u64,
}

/// What a member of a group is shown as.
#[derive(Clone)]
struct ShownName {
    path: String,
    /// Its name in the file.
    stored: Vec<u8>,
    is_as_stored: bool,
    position: Position,
}

/// The number of a member among the variables or the groups of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Variable(usize),
    Group(usize),
}

/// What a name in a group stands for.
enum Member {
    Object(Object),
    Refused(String),
}

impl<'f, 'r> Walk<'f, 'r> {
    pub(super) fn over(file: &'f Hdf5File<'r>, limits: &Limits) -> Result<Self> {
        let mut walk = Self {
            file,
            groups: Vec::new(),
            variables: Vec::new(),
            dimensions: Vec::new(),
            scales: HashMap::new(),
            named_types: NamedTypes::default(),
            listings: HashMap::new(),
            bytes_left: limits.metadata_bytes_max,
        };
        let root = file.object(file.superblock().root)?;
        walk.add_group(String::new(), &[], &root, &mut vec![root.address()])?;
        Ok(walk)
    }

    /// Numbers of all groups, each before those within it.
    pub(super) fn parents_first(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut pending = vec![0];
        while let Some(number) = pending.pop() {
            order.push(number);
            if let Some(group) = self.groups.get(number) {
                pending.extend(group.groups.iter().rev());
            }
        }
        order
    }

    pub(super) fn is_netcdf(&self) -> bool {
        let mut attributes = self.groups.first().into_iter().flat_map(|group| &group.attributes);
        !self.scales.is_empty() || attributes.any(|attribute| attribute.name == b"_NCProperties")
    }

    pub(super) fn names_of(&self, variable: &Variable) -> Vec<String> {
        let dimensions = variable.dimensions.iter().filter_map(|at| self.dimensions.get(*at));
        dimensions.map(|dimension| dimension.shown.name.clone()).collect()
    }

    pub(super) fn dimensions_of(&self, group: &Group) -> Vec<ForeignDimension> {
        let dimensions = group.dimensions.iter().filter_map(|at| self.dimensions.get(*at));
        dimensions.map(|dimension| dimension.shown.clone()).collect()
    }

    /// Takes a group with all that is within it; gives its number. `above` has its address, and those of
    /// the groups around it.
    fn add_group(
        &mut self,
        path: String,
        name: &[u8],
        object: &Object,
        above: &mut Vec<u64>,
    ) -> Result<usize> {
        let number = self.groups.len();
        if number >= GROUPS_MAX {
            return Err(Hdf5Error::limit_of_file(format!("more than {GROUPS_MAX} groups")));
        }
        let attributes = self.attributes_of(object)?;
        let listing = self.listing(object)?;
        self.groups.push(Group {
            path,
            name: name.to_vec(),
            attributes,
            dimensions: Vec::new(),
            variables: Vec::new(),
            groups: Vec::new(),
            refused: Vec::new(),
        });
        for (at, link) in listing.links().iter().enumerate() {
            if at.is_multiple_of(ANNOUNCED_MAX) {
                self.announce_members(listing.links().get(at..))?;
            }
            let reason = match self.add_member(number, object, link, above) {
                Ok(reason) => reason,
                // What is too much of one member alone says nothing of the others.
                Err(Hdf5Error::Limit { what }) => Some(format!("over a limit: {what}")),
                Err(error) => return Err(error.met_at(&self.shown_path(number, &link.name))),
            };
            if let Some(reason) = reason {
                self.list_refused(number, &link.name, reason);
            }
        }
        self.refuse_names_alike(number);
        Ok(number)
    }

    /// Announces the headers of the first of these members.
    fn announce_members(&self, links: Option<&[Link]>) -> Result {
        let links = links.unwrap_or_default().iter().take(ANNOUNCED_MAX);
        let headers = links.filter_map(|link| match link.target {
            LinkTarget::Hard(address) => Some((address, HEADER_BYTES)),
            _ => None,
        });
        self.file.source.announce(headers)
    }

    fn list_refused(&mut self, group: usize, name: &[u8], reason: String) {
        if let Some(group) = self.groups.get_mut(group) {
            group.refused.push(RefusedMember { name: plain(name), reason });
        }
    }

    /// The path of a member for messages.
    fn shown_path(&self, group: usize, name: &[u8]) -> String {
        let group = self.groups.get(group).map_or("", |group| group.path.as_str());
        format!("{group}/{}", plain(name))
    }

    /// Takes the member that a link stands for, or says why not.
    fn add_member(
        &mut self,
        group: usize,
        object: &Object,
        link: &Link,
        above: &mut Vec<u64>,
    ) -> Result<Option<String>> {
        match self.open(object, link, SOFT_LINKS_MAX)? {
            Member::Refused(reason) => Ok(Some(reason)),
            Member::Object(member) => self.add(group, link, &member, above),
        }
    }

    /// Takes a member into its group, or says why not.
    fn add(
        &mut self,
        group: usize,
        link: &Link,
        member: &Object,
        above: &mut Vec<u64>,
    ) -> Result<Option<String>> {
        match &member.kind {
            ObjectKind::Group => {
                let path = match self.path_in(group, &link.name) {
                    Ok(path) => path,
                    Err(reason) => return refuse(reason),
                };
                if above.contains(&member.address()) {
                    return refuse("a link back to a group that it lies in");
                }
                if above.len() >= DEPTH_MAX {
                    return refuse("more than 64 groups, one within another");
                }
                above.push(member.address());
                let added = self.add_group(path, &link.name, member, above);
                above.pop();
                let number = added?;
                self.groups.get_mut(group).into_iter().for_each(|group| group.groups.push(number));
                Ok(None)
            }
            ObjectKind::Dataset(dataset) => self.add_dataset(group, link, member, dataset),
            ObjectKind::Datatype(datatype) => {
                let name = String::from_utf8_lossy(&link.name).into_owned();
                self.keep(datatype.weight())?;
                self.named_types.push(name, member.address(), datatype.clone());
                Ok(None)
            }
        }
    }

    fn add_dataset(
        &mut self,
        group: usize,
        link: &Link,
        object: &Object,
        dataset: &Dataset,
    ) -> Result<Option<String>> {
        let outside = match dataset.layout {
            Layout::Virtual => "a virtual dataset over other files",
            Layout::External => "external storage",
            _ => "",
        };
        if !outside.is_empty() {
            return refuse(&format!(
                "{outside} named inside the file is refused; allow external files to read it"
            ));
        }
        let name = link.name.strip_prefix(NON_COORDINATE).unwrap_or(&link.name);
        let path = match self.path_in(group, name) {
            Ok(path) => path,
            Err(reason) => return refuse(reason),
        };
        if dataset.space == Dataspace::Null {
            return refuse("a dataset without a data space");
        }
        if is_too_large(dataset) {
            return refuse("more than 2^63 bytes");
        }
        if self.variables.len() >= VARIABLES_MAX {
            return Err(Hdf5Error::limit_of_file(format!("more than {VARIABLES_MAX} datasets")));
        }
        let name = last_of(&path).to_owned();
        let attributes = self.attributes_of(object)?;
        self.keep(dataset.weight())?;
        let address = object.address();
        let is_scale = dimensions::is_scale(&attributes);
        let is_new = is_scale && !self.scales.contains_key(&address);
        if is_new && let Some(dimension) = Dimension::of(self.file, name, dataset, &attributes)? {
            let number = self.dimensions.len();
            self.dimensions.push(dimension);
            self.scales.insert(address, number);
            self.groups.get_mut(group).into_iter().for_each(|group| group.dimensions.push(number));
        }
        if is_scale && dimensions::stands_for_dimension_only(&attributes) {
            return Ok(None);
        }
        let number = self.variables.len();
        self.variables.push(Variable {
            path,
            name: link.name.clone(),
            address,
            dataset: dataset.clone(),
            attributes,
            shape: dataset.space.shape().to_vec(),
            dimensions: Vec::new(),
            unlabeled: false,
        });
        self.groups.get_mut(group).into_iter().for_each(|group| group.variables.push(number));
        Ok(None)
    }

    fn attributes_of(&mut self, object: &Object) -> Result<Vec<Attribute>> {
        let attributes = self.file.attributes(object)?;
        let weights = attributes.iter().map(Attribute::weight);
        self.keep(weights.fold(0_u64, u64::saturating_add))?;
        Ok(attributes)
    }

    /// Counts bytes of metadata that are kept.
    fn keep(&mut self, bytes: u64) -> Result {
        let left = self.bytes_left.checked_sub(bytes);
        let over = || Hdf5Error::limit_of_file("metadata of all objects");
        self.bytes_left = left.ok_or_else(over)?;
        Ok(())
    }

    /// The path of a member of a group, or why it has none.
    fn path_in(&self, group: usize, name: &[u8]) -> std::result::Result<String, &'static str> {
        let name = display_name(name).ok_or("a name that cannot be shown")?;
        let path = self.groups.get(group).map_or("", |group| group.path.as_str());
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        if path.len() > PATH_BYTES_MAX {
            return Err("a path of more than 1,024 bytes");
        }
        Ok(path)
    }

    /// Of members of a group that would be shown by one path keeps the one that the file names so, else the
    /// first; of dimensions of one name the first.
    fn refuse_names_alike(&mut self, number: usize) {
        let refused = self.names_alike(number);
        let (mut groups, mut variables) = (HashSet::new(), HashSet::new());
        for name in refused {
            match name.position {
                Position::Variable(at) => variables.insert(at),
                Position::Group(at) => groups.insert(at),
            };
            let reason = format!("another member is shown as '{}', too", last_of(&name.path));
            self.list_refused(number, &name.stored, reason);
        }
        let scale_of = |at: &usize| {
            let variable = self.variables.get(*at)?;
            self.scales.get(&variable.address).copied()
        };
        let mut lost_scales: HashSet<usize> = variables.iter().filter_map(scale_of).collect();
        let Some(group) = self.groups.get_mut(number) else { return };
        group.groups.retain(|at| !groups.contains(at));
        group.variables.retain(|at| !variables.contains(at));
        for kept in group.variables.iter().filter_map(scale_of) {
            lost_scales.remove(&kept);
        }
        self.drop_dimensions_alike(number, lost_scales);
    }

    /// The members of a group that are shown as another one is, and are not the one to keep.
    fn names_alike(&self, number: usize) -> Vec<ShownName> {
        let names = self.shown_names(number);
        let mut kept: HashMap<&str, &ShownName> = HashMap::new();
        for name in &names {
            let known = kept.entry(&name.path).or_insert(name);
            if name.is_as_stored && !known.is_as_stored {
                *known = name;
            }
        }
        let is_kept = |name: &ShownName| {
            kept.get(name.path.as_str()).is_some_and(|kept| kept.position == name.position)
        };
        names.iter().filter(|name| !is_kept(name)).cloned().collect()
    }

    /// What the members of a group are shown as.
    fn shown_names(&self, number: usize) -> Vec<ShownName> {
        let Some(group) = self.groups.get(number) else { return Vec::new() };
        let name = |path: &String, stored: &Vec<u8>, position| {
            let is_as_stored = last_of(path).as_bytes() == stored;
            ShownName { path: path.clone(), stored: stored.clone(), is_as_stored, position }
        };
        let variables = group.variables.iter().filter_map(|at| {
            let found = self.variables.get(*at)?;
            Some(name(&found.path, &found.name, Position::Variable(*at)))
        });
        let groups = group.groups.iter().filter_map(|at| {
            let found = self.groups.get(*at)?;
            Some(name(&found.path, &found.name, Position::Group(*at)))
        });
        variables.chain(groups).collect()
    }

    /// Drops these dimensions of a group, and those that have the name of another before them: a variable
    /// that refers to one has an axis without a name.
    fn drop_dimensions_alike(&mut self, number: usize, mut dropped: HashSet<usize>) {
        let Some(group) = self.groups.get_mut(number) else { return };
        let mut names = HashSet::new();
        for at in &group.dimensions {
            let name = self.dimensions.get(*at).map(|dimension| dimension.shown.name.as_str());
            if !dropped.contains(at) && !names.insert(name) {
                dropped.insert(*at);
            }
        }
        if !dropped.is_empty() {
            group.dimensions.retain(|at| !dropped.contains(at));
            self.scales.retain(|_, at| !dropped.contains(at));
        }
    }

    fn listing(&mut self, group: &Object) -> Result<Rc<Listing>> {
        if let Some(listing) = self.listings.get(&group.address()) {
            return Ok(Rc::clone(listing));
        }
        let listing = Rc::new(Listing::of(self.file.links(group)?));
        self.keep(listing.weight())?;
        self.listings.insert(group.address(), Rc::clone(&listing));
        Ok(listing)
    }

    fn open(&mut self, group: &Object, link: &Link, links_left: usize) -> Result<Member> {
        match &link.target {
            LinkTarget::Hard(address) => self.file.object(*address).map(Member::Object),
            LinkTarget::Soft(path) => match links_left.checked_sub(1) {
                Some(links_left) => self.follow(group, path, links_left),
                None => Ok(Member::Refused("more than 16 soft links, one behind another".into())),
            },
            LinkTarget::External { file, .. } => Ok(Member::Refused(format!(
                "an external link to '{}', named inside the file, is refused; open that file \
                 itself, or allow external files",
                String::from_utf8_lossy(file)
            ))),
            LinkTarget::UserDefined(_) => {
                Ok(Member::Refused("a kind of link that is not known".into()))
            }
        }
    }

    /// What a soft link stands for, each step of its path looked at by itself.
    fn follow(&mut self, group: &Object, path: &[u8], links_left: usize) -> Result<Member> {
        let missing = || {
            let path = String::from_utf8_lossy(path);
            Ok(Member::Refused(format!("a soft link to '{path}', which does not exist")))
        };
        let mut found = if path.starts_with(b"/") {
            self.file.object(self.file.superblock().root)?
        } else {
            group.clone()
        };
        for name in path.split(|byte| *byte == b'/') {
            if name.is_empty() || name == b"." {
                continue;
            }
            if found.kind != ObjectKind::Group {
                return missing();
            }
            let listing = self.listing(&found)?;
            let Some(link) = listing.find(name) else { return missing() };
            match self.open(&found, link, links_left)? {
                Member::Object(object) => found = object,
                refused @ Member::Refused(_) => return Ok(refused),
            }
        }
        Ok(Member::Object(found))
    }
}

fn refuse(reason: &str) -> Result<Option<String>> {
    Ok(Some(reason.to_owned()))
}

/// The name as a segment of a path; none if it has none.
fn display_name(name: &[u8]) -> Option<String> {
    Some(shown(name)).filter(|name| !name.is_empty() && name.len() <= SEGMENT_BYTES_MAX)
}

/// The last part of a path.
fn last_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Whether an array is larger than any that the system can address, whatever its axes of length 0 say.
fn is_too_large(dataset: &Dataset) -> bool {
    let mut sizes = dataset.space.shape().iter().filter(|size| **size != 0);
    let bytes = sizes
        .try_fold(u64::from(dataset.datatype.size.max(1)), |bytes, size| bytes.checked_mul(*size));
    bytes.is_none_or(|bytes| bytes > ARRAY_BYTES_MAX)
}

/// The name as text, with `?` for each byte that is not UTF-8.
fn plain(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|_| text.push('?'));
    }
    text
}
