//! The model: an array as a list of elements in C order, and selections by their definitions.

use bedform_format::DataType;
use bedform_geometry::{AxisSelection, Region, Selection, delinearize, element_count, linearize};

/// The bytes of an element, or of its text.
pub(crate) type Element = Vec<u8>;

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) shape: Vec<u64>,
    pub(crate) elements: Vec<Element>,
    pub(crate) fill: Element,
}

impl Model {
    pub(crate) fn new(shape: &[u64], fill: &Element) -> Self {
        let count = usize::try_from(element_count(shape).unwrap()).unwrap();
        Self { shape: shape.to_vec(), elements: vec![fill.clone(); count], fill: fill.clone() }
    }

    fn at(&self, point: &[u64]) -> usize {
        usize::try_from(linearize(point, &self.shape)).unwrap()
    }

    pub(crate) fn read(&self, selection: &Selection) -> Vec<Element> {
        points_selected(selection)
            .iter()
            .map(|point| self.elements[self.at(point)].clone())
            .collect()
    }

    /// Of equal points the last element stays, as in NumPy.
    pub(crate) fn write(&mut self, selection: &Selection, elements: &[Element]) {
        for (point, element) in points_selected(selection).iter().zip(elements) {
            let at = self.at(point);
            self.elements[at].clone_from(element);
        }
    }

    pub(crate) fn resize(&mut self, shape: &[u64]) {
        let mut resized = Self::new(shape, &self.fill);
        for (at, element) in self.elements.iter().enumerate() {
            let point = delinearize(at as u64, &self.shape);
            if point.iter().zip(shape).all(|(at, size)| at < size) {
                let at = resized.at(&point);
                resized.elements[at].clone_from(element);
            }
        }
        *self = resized;
    }
}

/// All points of a shape, in C order.
pub(crate) fn points_of_shape(shape: &[u64]) -> Vec<Vec<u64>> {
    (0..element_count(shape).unwrap()).map(|index| delinearize(index, shape)).collect()
}

fn points_of(region: &Region) -> Vec<Vec<u64>> {
    let add = |point: Vec<u64>| point.iter().zip(region.start()).map(|(a, b)| a + b).collect();
    points_of_shape(region.shape()).into_iter().map(add).collect()
}

/// All points of a selection, in the order of the result.
pub(crate) fn points_selected(selection: &Selection) -> Vec<Vec<u64>> {
    match selection {
        Selection::Orthogonal(axes) => axes.iter().fold(vec![vec![]], |points, axis| {
            let longer = |point: &Vec<u64>| -> Vec<Vec<u64>> {
                positions(axis).into_iter().map(|at| [point.as_slice(), &[at]].concat()).collect()
            };
            points.iter().flat_map(longer).collect()
        }),
        Selection::Points(points) => (0..usize::try_from(points.count()).unwrap())
            .map(|i| points.coords().iter().map(|axis| axis[i]).collect())
            .collect(),
        Selection::Union(regions) => regions.iter().flat_map(points_of).collect(),
    }
}

fn positions(selection: &AxisSelection) -> Vec<u64> {
    match selection {
        AxisSelection::Coords(coords) => coords.clone(),
        AxisSelection::Range(range) => {
            let at = |i: u64| i128::from(range.start()) + i128::from(i) * i128::from(range.step());
            (0..range.len()).map(|i| u64::try_from(at(i)).unwrap()).collect()
        }
    }
}

/// Numbers from a seed: splitmix64.
#[derive(Debug, Clone)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    pub(crate) fn element(&mut self, data_type: DataType) -> Element {
        match data_type {
            DataType::Bool => vec![u8::from(self.below(2) == 1)],
            DataType::String => {
                let words = ["", "a", "water", "\u{fc}\u{4e2d}\u{1f600}", "two words"];
                words[usize::try_from(self.below(5)).unwrap()].as_bytes().to_vec()
            }
            other => {
                (0..other.item_size().unwrap()).map(|_| self.next().to_le_bytes()[0]).collect()
            }
        }
    }

    pub(crate) fn elements(&mut self, data_type: DataType, count: u64) -> Vec<Element> {
        (0..count).map(|_| self.element(data_type)).collect()
    }
}
