//! Calls of the HDF5 connector (`vol/engine.h`), which programs do not make.
//!
//! The connector is built with this library, so handles are pointers here: it closes each once, and
//! uses none afterwards.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::slice;

use bedform::hosted::{HostedDataset, HostedFile};
use bedform::panics::caught;
use bedform::trace::keep_traces;
use bedform_format::DataType;
use bedform_geometry::{AxisRange, AxisSelection, Points, Selection};

/// The version of these calls; the connector uses no others.
const CALLS: c_int = 1;
/// The largest rank of HDF5.
const RANK_MAX: usize = 32;

/// The elements of a read: a product of positions along each axis, or single points.
#[repr(C)]
pub struct SelectedElements {
    rank: c_uint,
    /// The axis whose positions are listed; the rank if all axes have evenly spaced ones.
    listed: c_uint,
    /// The number of points; 0 for a product of axes.
    points: u64,
    /// The first position along each axis; or the coordinates, point after point.
    start: *const u64,
    /// The distance of positions along each axis, and their number; unused for points.
    step: *const u64,
    count: *const u64,
    /// The positions of the listed axis, as many as its count.
    list: *const u64,
}

impl SelectedElements {
    /// Returns the selection; `None` for one that the engine does not have.
    ///
    /// # Safety
    /// The pointers are valid for the rank, or for the rank times the number of points; the list is
    /// valid for the count of its axis.
    unsafe fn selection(&self) -> Option<Selection> {
        let rank = usize::try_from(self.rank).ok().filter(|rank| *rank <= RANK_MAX)?;
        if rank == 0 {
            return Some(Selection::Orthogonal(Vec::new()));
        }
        if self.points > 0 {
            let length = usize::try_from(self.points).ok()?.checked_mul(rank)?;
            // SAFETY: the contract of this function.
            let coordinates = unsafe { slice::from_raw_parts(self.start, length) };
            let of_axis = |axis| coordinates.iter().skip(axis).step_by(rank).copied().collect();
            return Points::new((0..rank).map(of_axis).collect()).ok().map(Selection::Points);
        }
        // SAFETY: the contract of this function.
        let (start, step, count) = unsafe {
            (
                slice::from_raw_parts(self.start, rank),
                slice::from_raw_parts(self.step, rank),
                slice::from_raw_parts(self.count, rank),
            )
        };
        let range = |((start, step), count): ((&u64, &u64), &u64)| {
            AxisRange::new(*start, i64::try_from(*step).ok()?, *count).ok()
        };
        let ranges = start.iter().zip(step).zip(count).map(range);
        let axes = ranges.map(|range| range.map(AxisSelection::Range));
        let mut axes = axes.collect::<Option<Vec<_>>>()?;
        if let Some(axis) = axes.get_mut(usize::try_from(self.listed).ok()?) {
            // SAFETY: the contract of this function.
            let list =
                unsafe { slice::from_raw_parts(self.list, usize::try_from(axis.len()).ok()?) };
            *axis = AxisSelection::Coords(list.to_vec());
        }
        Some(Selection::Orthogonal(axes))
    }
}

/// Returns the version of these calls.
#[unsafe(no_mangle)]
pub extern "C" fn bf_hdf5_calls() -> c_int {
    CALLS
}

/// Returns what is known of the file that HDF5 has open for reading as `descriptor`; null for
/// nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_hdf5_file(descriptor: c_int) -> *mut HostedFile {
    // SAFETY: the connector passes the descriptor of an open file.
    let found = caught(|| HostedFile::find(unsafe { BorrowedFd::borrow_raw(descriptor) }));
    owned(found.ok().and_then(Result::ok).flatten())
}

/// Closes a file; its reads are written to the trace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_hdf5_file_close(file: *mut HostedFile) {
    // SAFETY: the file comes from `bf_hdf5_file`, and is closed once.
    unsafe { dropped(file) }
}

/// Returns the dataset whose object header is at `address`, with `rank` axes and elements of
/// `item_size` bytes; null if the engine does not know it as such. `kind` is set to the kind of
/// number: `i`, `u`, `f`, or `-` for elements that the engine never supplies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_hdf5_dataset(
    file: *const HostedFile,
    address: u64,
    rank: c_uint,
    item_size: usize,
    kind: *mut c_char,
) -> *mut HostedDataset {
    // SAFETY: the file is open, and `kind` is valid.
    let (file, kind) = unsafe { (&*file, &mut *kind) };
    let rank = usize::try_from(rank).unwrap_or(usize::MAX);
    let found = caught(|| file.dataset(address, rank, item_size)).ok().flatten();
    let of = found.as_ref().map_or(b'-', |dataset| kind_of(dataset.data_type()));
    *kind = c_char::try_from(of).unwrap_or_default();
    owned(found)
}

/// Returns the uses of reads of a dataset as of now: 1 if they are recorded, plus 2 if replicas may
/// supply elements, plus 4 if they may be made ahead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_hdf5_uses(dataset: *const HostedDataset) -> c_uint {
    // SAFETY: the dataset is open.
    let dataset = unsafe { &*dataset };
    let Ok(uses) = caught(|| dataset.uses()) else { return 0 };
    c_uint::from(uses.records)
        | c_uint::from(uses.has_replicas) << 1
        | c_uint::from(uses.reads_ahead) << 2
}

/// Closes a dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_hdf5_dataset_close(dataset: *mut HostedDataset) {
    // SAFETY: the dataset comes from `bf_hdf5_dataset`, and is closed once.
    unsafe { dropped(dataset) }
}

/// Supplies a read in the `length` bytes at `buffer`, in the machine's byte order, and returns 1;
/// else calls `read` with `context`, by which HDF5 reads, and returns 0. A null buffer only records
/// the read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bf_hdf5_read(
    dataset: *const HostedDataset,
    elements: *const SelectedElements,
    buffer: *mut c_void,
    length: usize,
    read: extern "C" fn(*mut c_void),
    context: *mut c_void,
) -> c_int {
    let mut is_read = false;
    let mut natively = || {
        is_read = true;
        read(context);
    };
    let supplied = caught(|| {
        // SAFETY: the dataset is open, and the elements are valid for this call.
        let (dataset, selection) = unsafe { (&*dataset, (*elements).selection()) };
        let Some(selection) = selection else { return false };
        if buffer.is_null() {
            dataset.record(&selection, &mut natively);
            return false;
        }
        // SAFETY: the buffer is the program's own, which only this call and `read` write.
        unsafe { dataset.supply_or(&selection, (buffer.cast(), length), &mut natively) }
    });
    if supplied.is_ok_and(|supplied| supplied) {
        return 1;
    }
    if !is_read {
        read(context);
    }
    0
}

/// Writes the recorded reads of all files, for a program that ends.
#[unsafe(no_mangle)]
pub extern "C" fn bf_hdf5_end() {
    let _ = caught(keep_traces);
}

/// Returns the kind of number of a type that HDF5 and the engine hold in the same bytes.
fn kind_of(data_type: DataType) -> u8 {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => b'i',
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => b'u',
        DataType::Float16 | DataType::Float32 | DataType::Float64 => b'f',
        _ => b'-',
    }
}

fn owned<T>(found: Option<T>) -> *mut T {
    found.map_or(std::ptr::null_mut(), |found| Box::into_raw(Box::new(found)))
}

/// # Safety
/// The pointer comes from [`owned`], and is dropped once.
unsafe fn dropped<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: the contract of this function.
        let _ = caught(|| drop(unsafe { Box::from_raw(pointer) }));
    }
}
