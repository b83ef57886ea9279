//! The walk over the groups and variables of one file; links into other files are refused.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::dimensions::{self, Dimension};
use super::listing::LinkLookup;
use super::named_types::NamedTypes;
use crate::Limits;
use crate::chunk_map::{ForeignDimension, RefusedMember};
use crate::hdf5::error::{Hdf5Error, Result};
use crate::hdf5::source::ANNOUNCED_MAX;
use crate::hdf5::{
    Attribute, Dataset, Dataspace, Hdf5File, Hdf5Layout, Hdf5Object, Link, LinkTarget, ObjectKind,
};
use crate::netcdf_classic::shown;
use crate::path::PATH_BYTES_MAX;
use crate::path::SEGMENT_BYTES_MAX;

/// Largest number of groups of a file; a group with several names counts once per name.
const GROUPS_MAX: usize = 100_000;
/// Largest depth of nested groups.
const DEPTH_MAX: usize = 64;
/// Largest number of variables of a file.
const VARIABLES_MAX: usize = 1_000_000;
/// Bytes that hold the headers of most objects.
const HEADER_BYTES: u64 = 2048;
/// Largest number of soft links in a chain.
const SOFT_LINKS_MAX: usize = 16;
/// Largest size of an array in bytes; file offsets are signed 64-bit integers.
const ARRAY_BYTES_MAX: u64 = i64::MAX as u64;
/// The prefix that the netCDF library gives a variable with the name of a dimension of which it is
/// not the coordinate.
const NON_COORDINATE: &[u8] = b"_nc4_non_coord_";

/// A group while the map is built.
pub(super) struct WalkedGroup {
    pub(super) path: String,
    /// Last segment of the path, as stored in the file.
    name: Vec<u8>,
    pub(super) attributes: Vec<Attribute>,
    /// Indexes of its dimensions, variables and groups in the walk.
    pub(super) dimensions: Vec<usize>,
    pub(super) variables: Vec<usize>,
    pub(super) groups: Vec<usize>,
    pub(super) refused: Vec<RefusedMember>,
}

/// A dataset while the map is built.
pub(super) struct WalkedVariable {
    pub(super) path: String,
    /// Last segment of the path, as stored in the file.
    name: Vec<u8>,
    /// Address of its object header.
    pub(super) address: u64,
    pub(super) dataset: Dataset,
    pub(super) attributes: Vec<Attribute>,
    /// Shape as NetCDF defines it: along a dimension that can grow, the current length of the
    /// dimension.
    pub(super) shape: Vec<u64>,
    /// Indexes of the dimensions of its axes in the walk.
    pub(super) dimensions: Vec<usize>,
    pub(super) unlabeled: bool,
}

/// The objects that a walk over a file has collected.
pub(super) struct FileWalk<'f, 'r> {
    pub(super) file: &'f Hdf5File<'r>,
    /// The root is the first.
    pub(super) groups: Vec<WalkedGroup>,
    pub(super) variables: Vec<WalkedVariable>,
    pub(super) dimensions: Vec<Dimension>,
    /// Index of the dimension of each scale, by address of the dataset.
    pub(super) scales: HashMap<u64, usize>,
    pub(super) named_types: NamedTypes,
    listings: HashMap<u64, Rc<LinkLookup>>,
    /// Bytes of metadata that may still be kept. An object with several names is kept, and counted,
    /// once per name.
    bytes_left: u64,
}

/// The path under which a member of a group is shown.
#[derive(Clone)]
struct ShownName {
    path: String,
    /// Name in the file.
    stored: Vec<u8>,
    is_as_stored: bool,
    position: MemberIndex,
}

/// The index of a member among the variables or the groups of the walk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberIndex {
    WalkedVariable(usize),
    WalkedGroup(usize),
}

/// The result of resolving a name in a group.
enum ResolvedMember {
    Hdf5Object(Hdf5Object),
    Refused(String),
}

impl<'f, 'r> FileWalk<'f, 'r> {
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

    /// Returns the indexes of all groups, parents before children.
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

    pub(super) fn names_of(&self, variable: &WalkedVariable) -> Vec<String> {
        let dimensions = variable.dimensions.iter().filter_map(|at| self.dimensions.get(*at));
        dimensions.map(|dimension| dimension.shown.name.clone()).collect()
    }

    pub(super) fn dimensions_of(&self, group: &WalkedGroup) -> Vec<ForeignDimension> {
        let dimensions = group.dimensions.iter().filter_map(|at| self.dimensions.get(*at));
        dimensions.map(|dimension| dimension.shown.clone()).collect()
    }

    /// Adds a group with its descendants, and returns its index. `above` holds the addresses of the
    /// group and its ancestors.
    fn add_group(
        &mut self,
        path: String,
        name: &[u8],
        object: &Hdf5Object,
        above: &mut Vec<u64>,
    ) -> Result<usize> {
        let number = self.groups.len();
        if number >= GROUPS_MAX {
            return Err(Hdf5Error::limit_of_file(format!("more than {GROUPS_MAX} groups")));
        }
        let attributes = self.attributes_of(object)?;
        let listing = self.listing(object)?;
        self.groups.push(WalkedGroup {
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
                // A limit on one member does not affect the others.
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

    /// Announces the object headers of the first members.
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

    /// Returns the path of a member, for messages.
    fn shown_path(&self, group: usize, name: &[u8]) -> String {
        let group = self.groups.get(group).map_or("", |group| group.path.as_str());
        format!("{group}/{}", plain(name))
    }

    /// Adds the object of a link, or returns the reason to refuse it.
    fn add_member(
        &mut self,
        group: usize,
        object: &Hdf5Object,
        link: &Link,
        above: &mut Vec<u64>,
    ) -> Result<Option<String>> {
        match self.open(object, link, SOFT_LINKS_MAX)? {
            ResolvedMember::Refused(reason) => Ok(Some(reason)),
            ResolvedMember::Hdf5Object(member) => self.add(group, link, &member, above),
        }
    }

    /// Adds a member to its group, or returns the reason to refuse it.
    fn add(
        &mut self,
        group: usize,
        link: &Link,
        member: &Hdf5Object,
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
        object: &Hdf5Object,
        dataset: &Dataset,
    ) -> Result<Option<String>> {
        let outside = match dataset.layout {
            Hdf5Layout::Virtual => "a virtual dataset over other files",
            Hdf5Layout::External => "external storage",
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
        self.variables.push(WalkedVariable {
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

    fn attributes_of(&mut self, object: &Hdf5Object) -> Result<Vec<Attribute>> {
        let attributes = self.file.attributes(object)?;
        let weights = attributes.iter().map(Attribute::weight);
        self.keep(weights.fold(0_u64, u64::saturating_add))?;
        Ok(attributes)
    }

    /// Charges bytes of kept metadata to the limit of the file.
    fn keep(&mut self, bytes: u64) -> Result {
        let left = self.bytes_left.checked_sub(bytes);
        let over = || Hdf5Error::limit_of_file("metadata of all objects");
        self.bytes_left = left.ok_or_else(over)?;
        Ok(())
    }

    /// Returns the path of a member of a group, or the reason why it has none.
    fn path_in(&self, group: usize, name: &[u8]) -> std::result::Result<String, &'static str> {
        let name = display_name(name).ok_or("a name that cannot be shown")?;
        let path = self.groups.get(group).map_or("", |group| group.path.as_str());
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        if path.len() > PATH_BYTES_MAX {
            return Err("a path of more than 1,024 bytes");
        }
        Ok(path)
    }

    /// Resolves equal shown paths within a group: keeps the member whose stored name equals the
    /// shown one, else the first. Of dimensions with equal names, keeps the first.
    fn refuse_names_alike(&mut self, number: usize) {
        let refused = self.names_alike(number);
        let (mut groups, mut variables) = (HashSet::new(), HashSet::new());
        for name in refused {
            match name.position {
                MemberIndex::WalkedVariable(at) => variables.insert(at),
                MemberIndex::WalkedGroup(at) => groups.insert(at),
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

    /// Returns the members to drop because another member is shown under the same path.
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

    /// Returns the shown names of the members of a group.
    fn shown_names(&self, number: usize) -> Vec<ShownName> {
        let Some(group) = self.groups.get(number) else { return Vec::new() };
        let name = |path: &String, stored: &Vec<u8>, position| {
            let is_as_stored = last_of(path).as_bytes() == stored;
            ShownName { path: path.clone(), stored: stored.clone(), is_as_stored, position }
        };
        let variables = group.variables.iter().filter_map(|at| {
            let found = self.variables.get(*at)?;
            Some(name(&found.path, &found.name, MemberIndex::WalkedVariable(*at)))
        });
        let groups = group.groups.iter().filter_map(|at| {
            let found = self.groups.get(*at)?;
            Some(name(&found.path, &found.name, MemberIndex::WalkedGroup(*at)))
        });
        variables.chain(groups).collect()
    }

    /// Drops the dimensions `dropped` of a group, and each dimension with the name of an earlier
    /// one. The axes that refer to them lose their name.
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

    fn listing(&mut self, group: &Hdf5Object) -> Result<Rc<LinkLookup>> {
        if let Some(listing) = self.listings.get(&group.address()) {
            return Ok(Rc::clone(listing));
        }
        let listing = Rc::new(LinkLookup::of(self.file.links(group)?));
        self.keep(listing.weight())?;
        self.listings.insert(group.address(), Rc::clone(&listing));
        Ok(listing)
    }

    fn open(
        &mut self,
        group: &Hdf5Object,
        link: &Link,
        links_left: usize,
    ) -> Result<ResolvedMember> {
        match &link.target {
            LinkTarget::Hard(address) => self.file.object(*address).map(ResolvedMember::Hdf5Object),
            LinkTarget::Soft(path) => match links_left.checked_sub(1) {
                Some(links_left) => self.follow(group, path, links_left),
                None => Ok(ResolvedMember::Refused(
                    "more than 16 soft links, one behind another".into(),
                )),
            },
            LinkTarget::External { file, .. } => Ok(ResolvedMember::Refused(format!(
                "an external link to '{}', named inside the file, is refused; open that file \
                 itself, or allow external files",
                String::from_utf8_lossy(file)
            ))),
            LinkTarget::UserDefined(_) => {
                Ok(ResolvedMember::Refused("a kind of link that is not known".into()))
            }
        }
    }

    /// Resolves a soft link, one segment of its path at a time.
    fn follow(
        &mut self,
        group: &Hdf5Object,
        path: &[u8],
        links_left: usize,
    ) -> Result<ResolvedMember> {
        let missing = || {
            let path = String::from_utf8_lossy(path);
            Ok(ResolvedMember::Refused(format!("a soft link to '{path}', which does not exist")))
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
                ResolvedMember::Hdf5Object(object) => found = object,
                refused @ ResolvedMember::Refused(_) => return Ok(refused),
            }
        }
        Ok(ResolvedMember::Hdf5Object(found))
    }
}

fn refuse(reason: &str) -> Result<Option<String>> {
    Ok(Some(reason.to_owned()))
}

/// Returns the name as a path segment; `None` if it has no valid form.
fn display_name(name: &[u8]) -> Option<String> {
    Some(shown(name)).filter(|name| !name.is_empty() && name.len() <= SEGMENT_BYTES_MAX)
}

/// Returns the last segment of a path.
fn last_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns true if an array exceeds 2^63 - 1 bytes, not counting axes of length 0.
fn is_too_large(dataset: &Dataset) -> bool {
    let mut sizes = dataset.space.shape().iter().filter(|size| **size != 0);
    let bytes = sizes
        .try_fold(u64::from(dataset.datatype.size.max(1)), |bytes, size| bytes.checked_mul(*size));
    bytes.is_none_or(|bytes| bytes > ARRAY_BYTES_MAX)
}

/// Returns the name as text, with `?` for each byte that is not UTF-8.
fn plain(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|_| text.push('?'));
    }
    text
}
