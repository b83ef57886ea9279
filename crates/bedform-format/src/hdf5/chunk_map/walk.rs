//! The groups and variables of a file, without leaving it: what names another file is refused.

use std::collections::HashMap;
use std::rc::Rc;

use super::dimensions::{self, Dimension};
use super::element::NamedTypes;
use crate::Limits;
use crate::chunk_map::{ForeignDimension, RefusedMember};
use crate::hdf5::error::{Hdf5Error, Result};
use crate::hdf5::{
    Attribute, Dataset, Dataspace, Hdf5File, Layout, Link, LinkTarget, Links, Object, ObjectKind,
};
use crate::netcdf_classic::shown;

/// Groups of one file, counted as often as they have names.
const GROUPS_MAX: usize = 100_000;
/// Groups within groups.
const DEPTH_MAX: usize = 64;
/// Variables of one file.
const VARIABLES_MAX: usize = 1_000_000;
/// Soft links, one behind another.
const SOFT_LINKS_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 255;
/// What the netCDF library puts before the name of a variable that is not the coordinate of the
/// dimension of the same name.
const NON_COORDINATE: &[u8] = b"_nc4_non_coord_";

/// A group on its way into the map.
pub(super) struct Group {
    pub(super) path: String,
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
    listings: HashMap<u64, Rc<Links>>,
    /// Bytes of metadata that may still be kept: an object of many names is kept for each.
    bytes_left: u64,
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
            named_types: Vec::new(),
            listings: HashMap::new(),
            bytes_left: limits.metadata_bytes_max,
        };
        let root = file.object(file.superblock().root)?;
        walk.add_group(String::new(), &root, &mut Vec::new())?;
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

    /// Takes a group with all that is within it; gives its number.
    fn add_group(&mut self, path: String, object: &Object, above: &mut Vec<u64>) -> Result<usize> {
        let number = self.groups.len();
        if number >= GROUPS_MAX {
            return Err(Hdf5Error::limit(format!("more than {GROUPS_MAX} groups")));
        }
        let attributes = self.attributes_of(object)?;
        self.groups.push(Group {
            path,
            attributes,
            dimensions: Vec::new(),
            variables: Vec::new(),
            groups: Vec::new(),
            refused: Vec::new(),
        });
        above.push(object.address());
        let listing = self.listing(object)?;
        for link in &listing.links {
            let reason = match self.open(object, link, SOFT_LINKS_MAX)? {
                Member::Refused(reason) => Some(reason),
                Member::Object(member) => self.add(number, link, &member, above)?,
            };
            if let (Some(reason), Some(group)) = (reason, self.groups.get_mut(number)) {
                group.refused.push(RefusedMember { name: plain(&link.name), reason });
            }
        }
        above.pop();
        Ok(number)
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
                let Some(path) = self.path_in(group, &link.name) else {
                    return refuse("a name that cannot be shown");
                };
                if above.contains(&member.address()) {
                    return refuse("a link back to a group that it lies in");
                }
                if above.len() >= DEPTH_MAX {
                    return refuse("more than 64 groups, one within another");
                }
                let number = self.add_group(path, member, above)?;
                self.groups.get_mut(group).into_iter().for_each(|group| group.groups.push(number));
                Ok(None)
            }
            ObjectKind::Dataset(dataset) => self.add_dataset(group, link, member, dataset),
            ObjectKind::Datatype(datatype) => {
                let name = String::from_utf8_lossy(&link.name).into_owned();
                self.keep(datatype.weight())?;
                self.named_types.push((name, member.address(), datatype.clone()));
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
        let (Some(path), Some(name)) = (self.path_in(group, name), display_name(name)) else {
            return refuse("a name that cannot be shown");
        };
        if dataset.space == Dataspace::Null {
            return refuse("a dataset without a data space");
        }
        if self.variables.len() >= VARIABLES_MAX {
            return Err(Hdf5Error::limit(format!("more than {VARIABLES_MAX} datasets")));
        }
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
        self.bytes_left = left.ok_or_else(|| Hdf5Error::limit("metadata of all objects"))?;
        Ok(())
    }

    /// The path of a member of a group; none if its name cannot be shown.
    fn path_in(&self, group: usize, name: &[u8]) -> Option<String> {
        let name = display_name(name)?;
        let path = &self.groups.get(group)?.path;
        Some(if path.is_empty() { name } else { format!("{path}/{name}") })
    }

    fn listing(&mut self, group: &Object) -> Result<Rc<Links>> {
        if let Some(listing) = self.listings.get(&group.address()) {
            return Ok(Rc::clone(listing));
        }
        let listing = Rc::new(self.file.links(group)?);
        let names = listing.links.iter().map(|link| link.name.len().saturating_add(16));
        self.keep(names.fold(0_u64, |sum, bytes| sum.saturating_add(bytes as u64)))?;
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
            let Some(link) = listing.links.iter().find(|link| link.name == name) else {
                return missing();
            };
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
    Some(shown(name)).filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX)
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
