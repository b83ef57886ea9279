//! Runs of elements, joined and chosen from.

use half::f16;

use crate::values::{ValueSlice, Values, each_number};

macro_rules! define_choice {
    ($($variant:ident $number:ty),*) => {
        impl ValueSlice<'_> {
            /// Returns a copy of the elements.
            pub fn to_values(&self) -> Values {
                match self {
                    Self::Bool(elements) => {
                        Values::Bool(elements.iter().map(|byte| u8::from(*byte != 0)).collect())
                    }
                    $(Self::$variant(elements) => Values::$variant(elements.to_vec()),)*
                }
            }

            /// Returns the elements whose byte in `mask` is not 0.
            pub fn chosen(&self, mask: &[u8]) -> Values {
                match self {
                    Self::Bool(elements) => Values::Bool(chosen(elements, mask)),
                    $(Self::$variant(elements) => Values::$variant(chosen(elements, mask)),)*
                }
            }
        }

        impl Values {
            /// Adds the elements of another run of the same type; others are dropped.
            pub fn append(&mut self, more: Self) {
                match (self, more) {
                    (Self::Bool(elements), Self::Bool(more)) => elements.extend(more),
                    $((Self::$variant(elements), Self::$variant(more)) => elements.extend(more),)*
                    _ => {}
                }
            }

            /// Drops the elements behind the first `count`.
            pub fn truncate(&mut self, count: usize) {
                match self {
                    Self::Bool(elements) => elements.truncate(count),
                    $(Self::$variant(elements) => elements.truncate(count),)*
                }
            }

            /// Returns the elements at these indexes, in their order.
            ///
            /// # Panics
            ///
            /// If an index lies behind the end.
            pub fn taken(&self, indexes: &[usize]) -> Self {
                match self {
                    Self::Bool(elements) => {
                        Self::Bool(indexes.iter().map(|at| elements[*at]).collect())
                    }
                    $(Self::$variant(elements) => {
                        Self::$variant(indexes.iter().map(|at| elements[*at]).collect())
                    })*
                }
            }

            /// Returns the elements as real numbers of 64 bits; large integers are rounded.
            #[allow(clippy::cast_precision_loss, clippy::cast_lossless)]
            pub fn to_reals(&self) -> Vec<f64> {
                match self {
                    Self::Bool(elements) => elements.iter().map(|byte| f64::from(*byte)).collect(),
                    $(Self::$variant(elements) => {
                        elements.iter().map(|element| ToReal::real(*element)).collect()
                    })*
                }
            }

            /// Returns the bytes of the elements, in native byte order.
            pub fn as_bytes(&self) -> &[u8] {
                use zerocopy::IntoBytes as _;
                match self {
                    Self::Bool(elements) => elements,
                    $(Self::$variant(elements) => elements.as_slice().as_bytes(),)*
                }
            }
        }

        $(impl ToReal for $number {
            fn real(self) -> f64 {
                define_choice!(@real $variant self)
            }
        })*
    };
    (@real Float16 $element:ident) => { $element.to_f64() };
    (@real $variant:ident $element:ident) => {{
        #[allow(clippy::cast_precision_loss, clippy::cast_lossless, trivial_numeric_casts)]
        let real = $element as f64;
        real
    }};
}
each_number!(define_choice);

/// A number as a real number of 64 bits.
trait ToReal {
    fn real(self) -> f64;
}

fn chosen<T: Copy>(elements: &[T], mask: &[u8]) -> Vec<T> {
    elements.iter().zip(mask).filter(|(_, byte)| **byte != 0).map(|(element, _)| *element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_chosen_by_a_mask_joined_and_taken() {
        let mut values = ValueSlice::Int16(&[1, -2, 3]).chosen(&[1, 0, 1]);
        values.append(Values::Int16(vec![7]));
        assert_eq!(values, Values::Int16(vec![1, 3, 7]));
        assert_eq!(values.taken(&[2, 0]), Values::Int16(vec![7, 1]));
        values.truncate(1);
        assert_eq!(values.to_reals(), [1.0]);
        assert_eq!(Values::UInt8(vec![4, 5]).as_bytes(), [4, 5]);
        assert_eq!(ValueSlice::Bool(&[0, 9]).to_values(), Values::Bool(vec![0, 1]));
    }
}
