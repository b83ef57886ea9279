//! The types of elements, and elements of each: one, a borrowed run, an owned run.

use std::fmt;

use half::f16;
use zerocopy::{FromBytes, IntoBytes};

/// Calls a macro with the types of numbers: the variant, the Rust type.
macro_rules! each_number {
    ($callback:ident) => {
        $callback! {
            Int8 i8, Int16 i16, Int32 i32, Int64 i64,
            UInt8 u8, UInt16 u16, UInt32 u32, UInt64 u64,
            Float16 f16, Float32 f32, Float64 f64
        }
    };
}
pub(crate) use each_number;

macro_rules! define_values {
    ($($variant:ident $number:ty),*) => {
        /// The type of an element, of the types that expressions work on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum ValueType {
            Bool,
            $($variant,)*
        }

        /// One value.
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[allow(missing_docs)]
        pub enum ScalarValue {
            Bool(bool),
            $($variant($number),)*
        }

        /// A borrowed run of elements in native byte order. Booleans are bytes: 0 is false, all
        /// others are true.
        #[derive(Debug, Clone, Copy)]
        #[allow(missing_docs)]
        pub enum ValueSlice<'a> {
            Bool(&'a [u8]),
            $($variant(&'a [$number]),)*
        }

        /// An owned run of elements. Booleans are bytes of 0 or 1.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum Values {
            Bool(Vec<u8>),
            $($variant(Vec<$number>),)*
        }

        impl ScalarValue {
            /// Returns the type of the value.
            pub fn value_type(self) -> ValueType {
                match self {
                    Self::Bool(_) => ValueType::Bool,
                    $(Self::$variant(_) => ValueType::$variant,)*
                }
            }
        }

        impl<'a> ValueSlice<'a> {
            /// Takes bytes as elements of a type, in native byte order. `None` if the bytes are not
            /// whole elements, or not aligned to them.
            pub fn of_bytes(value_type: ValueType, bytes: &'a [u8]) -> Option<Self> {
                Some(match value_type {
                    ValueType::Bool => Self::Bool(bytes),
                    $(ValueType::$variant => {
                        Self::$variant(<[$number]>::ref_from_bytes(bytes).ok()?)
                    })*
                })
            }

            /// Returns the type of the elements.
            pub fn value_type(&self) -> ValueType {
                match self {
                    Self::Bool(_) => ValueType::Bool,
                    $(Self::$variant(_) => ValueType::$variant,)*
                }
            }

            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                match self {
                    Self::Bool(elements) => elements.len(),
                    $(Self::$variant(elements) => elements.len(),)*
                }
            }

            /// Returns true if there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns the element at an index; `None` behind the end.
            pub fn get(&self, index: usize) -> Option<ScalarValue> {
                match self {
                    Self::Bool(elements) => {
                        elements.get(index).map(|byte| ScalarValue::Bool(*byte != 0))
                    }
                    $(Self::$variant(elements) => {
                        elements.get(index).map(|element| ScalarValue::$variant(*element))
                    })*
                }
            }

            /// Returns the elements from `start` up to `end`, which are at most `len()`.
            pub fn slice(&self, start: usize, end: usize) -> Self {
                match self {
                    Self::Bool(elements) => Self::Bool(&elements[start..end]),
                    $(Self::$variant(elements) => Self::$variant(&elements[start..end]),)*
                }
            }
        }

        impl Values {
            /// Makes a run of one element.
            pub fn one(value: ScalarValue) -> Self {
                match value {
                    ScalarValue::Bool(value) => Self::Bool(vec![u8::from(value)]),
                    $(ScalarValue::$variant(value) => Self::$variant(vec![value]),)*
                }
            }

            /// Makes an empty run of a type.
            pub fn new(value_type: ValueType) -> Self {
                match value_type {
                    ValueType::Bool => Self::Bool(Vec::new()),
                    $(ValueType::$variant => Self::$variant(Vec::new()),)*
                }
            }

            /// Copies bytes, of any alignment, as elements of a type in native byte order. `None` if
            /// the bytes are not whole elements.
            pub fn of_bytes(value_type: ValueType, bytes: &[u8]) -> Option<Self> {
                let mut values = Self::new(value_type);
                values.copy_bytes(bytes).then_some(values)
            }

            /// Replaces the elements by those in bytes, of any alignment, in native byte order;
            /// the memory is kept. Returns false, and changes nothing, if the bytes are not whole
            /// elements.
            #[must_use]
            pub fn copy_bytes(&mut self, bytes: &[u8]) -> bool {
                let size = self.value_type().bytes();
                if bytes.len() % size != 0 {
                    return false;
                }
                match self {
                    Self::Bool(elements) => {
                        elements.clear();
                        elements.extend(bytes.iter().map(|byte| u8::from(*byte != 0)));
                    }
                    $(Self::$variant(elements) => {
                        elements.resize(bytes.len() / size, <$number>::default());
                        elements.as_mut_slice().as_mut_bytes().copy_from_slice(bytes);
                    })*
                }
                true
            }

            /// Returns the type of the elements.
            pub fn value_type(&self) -> ValueType {
                match self {
                    Self::Bool(_) => ValueType::Bool,
                    $(Self::$variant(_) => ValueType::$variant,)*
                }
            }

            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                self.as_slice().len()
            }

            /// Returns true if there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns the elements.
            pub fn as_slice(&self) -> ValueSlice<'_> {
                match self {
                    Self::Bool(elements) => ValueSlice::Bool(elements),
                    $(Self::$variant(elements) => ValueSlice::$variant(elements),)*
                }
            }
        }
    };
}
each_number!(define_values);

impl ValueType {
    /// Returns NumPy's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::UInt8 => "uint8",
            Self::UInt16 => "uint16",
            Self::UInt32 => "uint32",
            Self::UInt64 => "uint64",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
        }
    }

    /// Returns the size of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 | Self::Float16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 => 8,
        }
    }

    /// Returns true for floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float16 | Self::Float32 | Self::Float64)
    }

    /// Returns true for signed and unsigned integers.
    pub fn is_integer(self) -> bool {
        !self.is_float() && self != Self::Bool
    }

    /// Returns true for signed integers.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64)
    }
}

impl Values {
    /// Becomes an empty run of a type, unless it has this type already.
    pub(crate) fn become_type(&mut self, value_type: ValueType) {
        if self.value_type() != value_type {
            *self = Self::new(value_type);
        }
    }

    /// The bytes of booleans. A run of another type becomes an empty one of booleans.
    pub(crate) fn booleans(&mut self) -> &mut Vec<u8> {
        self.become_type(ValueType::Bool);
        let Self::Bool(bytes) = self else { unreachable!() };
        bytes
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Elements of one type: a slice, or a vector where they had to be computed.
pub(crate) enum Run<'a> {
    Borrowed(ValueSlice<'a>),
    Owned(Values),
}

impl Run<'_> {
    pub(crate) fn as_slice(&self) -> ValueSlice<'_> {
        match self {
            Self::Borrowed(slice) => *slice,
            Self::Owned(values) => values.as_slice(),
        }
    }
}
