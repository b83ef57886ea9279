//! The calls of a session that write. They check the boxes and the data before they take any.

use bedform_format::ObjectPath;
use bedform_format::log::{Boxes, LogError};
use bedform_geometry::{Selection, element_count};

use super::{Decomposition, Session, Token, holds_text};
use crate::comm::{Communicator, decide};
use crate::error::{Error, ErrorKind, Result};
use crate::log::boxes::parts_of;
use crate::log::segment::{LentData, to_error};
use crate::log::stream::{DeclaredBoxes, SectionStream, WriteData, WriteTarget};
use crate::plan::copy;
use crate::write::elements::Elements;

impl Session {
    /// Takes `elements` for `selection` of the array at `path`. They are copied, and become visible
    /// with the commit. Of overlapping writes the later one counts; between members, the one with
    /// the later epoch (the count of collective calls), then with the higher rank. The token is for
    /// [`Session::wait`].
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` by the selection or the number of elements; `Unsupported`
    /// for arrays of text; the error of a write in the background.
    pub fn write(
        &mut self,
        path: &ObjectPath,
        selection: &Selection,
        elements: Elements<'_>,
    ) -> Result<Token> {
        let Elements::Bytes(bytes) = elements else { return Err(holds_text(path)) };
        self.write_data(path, selection, WriteData::Copied(bytes))
    }

    /// As [`Session::write`], without a copy where that is faster. The session keeps the `elements`
    /// until they are written, at the latest until the commit; [`Session::wait`] waits for that.
    ///
    /// # Errors
    /// As [`Session::write`].
    pub fn write_held(
        &mut self,
        path: &ObjectPath,
        selection: &Selection,
        elements: LentData,
    ) -> Result<Token> {
        self.write_data(path, selection, WriteData::Lent(elements))
    }

    fn write_data(
        &mut self,
        path: &ObjectPath,
        selection: &Selection,
        data: WriteData<'_>,
    ) -> Result<Token> {
        self.check_sound()?;
        let (arrays, member) = (&mut self.arrays, &mut self.member);
        let known = arrays.large_enough(member, path, |shape| selection.validate(shape).is_ok())?;
        let (shape, item) = (&known.target.shape, known.target.item_size);
        let inside = selection.validate(shape).map_err(|error| Error::from(error).at(path));
        inside.map_err(|error| member.outside(error))?;
        check_bytes(path, data.bytes().len(), selection.len(), item)?;
        if data.bytes().is_empty() {
            return Ok(member.token());
        }
        let parts = parts_of(selection, shape.len(), item)?;
        let stream = member.begin_write(&known.target, parts.boxes)?;
        let outcome = match parts.copies {
            None => stream.add(data),
            Some(copies) => add_gathered(stream, data.bytes(), copies, item),
        };
        member.end_write(outcome)
    }

    /// As [`Session::write`], for several boxes: their elements follow each other, each box in C
    /// order.
    ///
    /// # Errors
    /// As [`Session::write`].
    pub fn write_boxes(
        &mut self,
        path: &ObjectPath,
        boxes: Boxes,
        elements: &[u8],
    ) -> Result<Token> {
        self.check_sound()?;
        let (arrays, member) = (&mut self.arrays, &mut self.member);
        let known = arrays.large_enough(member, path, |shape| boxes.validate(shape).is_ok())?;
        let inside = boxes.validate(&known.target.shape).map_err(|error| outside(path, &error));
        inside.map_err(|error| member.outside(error))?;
        let count = boxes.elements().map_err(to_error)?;
        check_bytes(path, elements.len(), Some(count), known.target.item_size)?;
        let stream = member.begin_write(&known.target, boxes)?;
        let outcome = stream.add(WriteData::Copied(elements));
        member.end_write(outcome)
    }

    /// Declares boxes once, for many writes of this member, to any array and record in which they
    /// lie. The data of such a write need no description of their own.
    ///
    /// # Errors
    /// `InvalidArgument` if there are no boxes, or one is empty.
    pub fn declare(&mut self, boxes: Boxes) -> Result<Decomposition> {
        boxes.validate(&vec![u64::MAX; boxes.rank()]).map_err(to_error)?;
        boxes.elements().map_err(to_error)?;
        let number = self.declarations;
        self.declarations += 1;
        self.declared.insert(number, DeclaredBoxes::new(boxes));
        Ok(Decomposition(number))
    }

    /// Forgets declared boxes, whose memory is freed at the latest with the next commit. Writes of
    /// them that were made before stay. Unknown ones are ignored.
    pub fn forget(&mut self, decomposition: Decomposition) {
        self.declared.remove(&decomposition.0);
    }

    /// As [`Session::write_boxes`], for declared boxes. With a `record`, an index along the first
    /// axis, they have one axis less than the array.
    ///
    /// # Errors
    /// As [`Session::write`].
    pub fn write_declared(
        &mut self,
        path: &ObjectPath,
        record: Option<u64>,
        decomposition: Decomposition,
        elements: &[u8],
    ) -> Result<Token> {
        self.write_declared_data(path, record, decomposition, WriteData::Copied(elements))
    }

    /// As [`Session::write_declared`], without a copy where that is faster: see
    /// [`Session::write_held`].
    ///
    /// # Errors
    /// As [`Session::write`].
    pub fn write_declared_held(
        &mut self,
        path: &ObjectPath,
        record: Option<u64>,
        decomposition: Decomposition,
        elements: LentData,
    ) -> Result<Token> {
        self.write_declared_data(path, record, decomposition, WriteData::Lent(elements))
    }

    fn write_declared_data(
        &mut self,
        path: &ObjectPath,
        record: Option<u64>,
        decomposition: Decomposition,
        data: WriteData<'_>,
    ) -> Result<Token> {
        self.check_sound()?;
        let unknown = || Error::invalid("this decomposition was not declared in this session");
        let declared = self.declared.get_mut(&decomposition.0).ok_or_else(unknown)?;
        let (arrays, member) = (&mut self.arrays, &mut self.member);
        let check = |shape: &[u64]| check_boxes_within(&declared.boxes, record, shape);
        let known = arrays.large_enough(member, path, |shape| check(shape).is_ok())?;
        let inside = check(&known.target.shape).map_err(|error| error.at(path));
        inside.map_err(|error| member.outside(error))?;
        let (turn, commit) = (member.turn(), member.commit_id());
        let stream = member.stream()?;
        let count = declared.boxes.elements().map_err(to_error)?;
        check_bytes(path, data.bytes().len(), Some(count), known.target.item_size)?;
        stream
            .begin_declared(&known.target, record, declared, turn, commit)
            .map_err(|error| error.at(path.to_string()))?;
        let outcome = stream.add(data);
        member.end_write(outcome)
    }

    /// Makes the array at `path` larger from the next commit on; new elements that are not written
    /// are the fill value. Other members need not make this call: along each axis the largest
    /// length counts.
    ///
    /// # Errors
    /// `InvalidArgument` for another rank, or a shape that is smaller along some axis.
    pub fn resize(&mut self, path: &ObjectPath, shape: &[u64]) -> Result<()> {
        self.check_sound()?;
        let known = self.arrays.large_enough(&self.member, path, |_| false)?;
        let old = &known.target.shape;
        let grows = shape.len() == old.len() && old.iter().zip(shape).all(|(old, new)| old <= new);
        if !grows || shape.iter().any(|length| i64::try_from(*length).is_err()) {
            return Err(Error::invalid(format!(
                "{path} of shape {old:?} cannot become {shape:?} in a session, which only makes \
                 arrays larger; resize the array directly"
            )));
        }
        known.target.resize(shape);
        Ok(())
    }

    /// Appends `elements`, an array of `shape`, to the end of the array at `path` along `axis`.
    /// Collective: the members' elements follow each other by rank. Returns the index along `axis`
    /// at which this member's elements start. If another session appends before this one commits,
    /// the commit fails with `Conflict`.
    ///
    /// # Errors
    /// As [`Session::write`], the first of any member on all; `InvalidArgument` if the members name
    /// different arrays or axes, or make different collective calls. Nothing is appended then.
    pub fn append(
        &mut self,
        path: &ObjectPath,
        axis: usize,
        shape: &[u64],
        elements: Elements<'_>,
    ) -> Result<u64> {
        self.append_given(path, axis, shape, Ok(elements))
    }

    /// As [`Session::append`]. If a member passes an error, that is the error of all members.
    ///
    /// # Errors
    /// As [`Session::append`]; those of the members.
    pub fn append_given(
        &mut self,
        path: &ObjectPath,
        axis: usize,
        shape: &[u64],
        elements: Result<Elements<'_>>,
    ) -> Result<u64> {
        self.member.check_process()?;
        self.enter(format!("append({:?}, axis {axis})", path.as_str()));
        let (elements, mine) = match elements {
            Ok(elements) => (elements, self.append_request(path, axis, shape, elements)),
            Err(error) => (Elements::Bytes(&[]), Err(error)),
        };
        let told = decide(&*self.member.group, mine, |parts| {
            check_one_array(path, &parts)?;
            Ok(append_starts(&parts))
        })?;
        self.member.epoch += 1;
        let numbers: Vec<u64> =
            told.as_chunks::<8>().0.iter().copied().map(u64::from_le_bytes).collect();
        let (Some(end), Some(start)) =
            (numbers.first(), numbers.get(self.member.group.rank() as usize + 1))
        else {
            return Err(Error::invalid("the members' coordinator erred"));
        };
        let known = self.arrays.at(&self.member, path)?;
        known.target.base[axis] = known.before[axis];
        known.target.shape[axis] = *end;
        let mut corner = vec![0; known.target.shape.len()];
        corner[axis] = *start;
        if element_count(shape).unwrap_or(u64::MAX) > 0 {
            let boxes = Boxes::one(&corner, shape).map_err(to_error)?;
            let Elements::Bytes(bytes) = elements else { return Err(holds_text(path)) };
            self.write_boxes(path, boxes, bytes)?;
        }
        Ok(*start)
    }

    /// Gives the bytes of each member to all members, by rank. Collective; `call` names the call.
    ///
    /// # Errors
    /// The first error of any member, on all; `InvalidArgument` if the members make different
    /// collective calls.
    pub(crate) fn exchange(&mut self, call: String, mine: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        self.member.check_process()?;
        self.enter(call);
        let mine = self.check_sound().and(mine);
        let told = decide(&*self.member.group, mine, |parts| {
            Ok(parts
                .iter()
                .flat_map(|part| {
                    (part.len() as u64).to_le_bytes().into_iter().chain(part.iter().copied())
                })
                .collect())
        })?;
        self.member.epoch += 1;
        let (mut parts, mut rest) = (Vec::new(), &told[..]);
        while let Some((length, after)) = rest.split_first_chunk::<8>() {
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let Some((part, after)) = after.split_at_checked(length) else { break };
            parts.push(part.to_vec());
            rest = after;
        }
        Ok(parts)
    }

    /// The rank of this member.
    pub(crate) fn rank(&self) -> usize {
        self.member.group.rank() as usize
    }

    /// Returns the length of the array along `axis`, the length that this member appends, and the
    /// array's key, as bytes.
    fn append_request(
        &mut self,
        path: &ObjectPath,
        axis: usize,
        shape: &[u64],
        elements: Elements<'_>,
    ) -> Result<Vec<u8>> {
        self.check_sound()?;
        let WriteTarget { key, item_size, shape: old, .. } =
            &self.arrays.large_enough(&self.member, path, |_| false)?.target;
        let fits = shape.len() == old.len()
            && axis < old.len()
            && (0..old.len()).all(|other| other == axis || shape[other] == old[other]);
        if !fits {
            return Err(Error::invalid(format!(
                "elements of shape {shape:?} cannot be appended to {path} of shape {old:?} along \
                 axis {axis}"
            )));
        }
        let count = element_count(shape).unwrap_or(u64::MAX);
        if count > 0 {
            let Elements::Bytes(bytes) = elements else { return Err(holds_text(path)) };
            check_bytes(path, bytes.len(), Some(count), *item_size)?;
        }
        Ok([&old[axis].to_le_bytes()[..], &shape[axis].to_le_bytes(), key].concat())
    }
}

fn add_gathered(
    stream: &mut SectionStream,
    bytes: &[u8],
    copies: Vec<(usize, copy::Copy)>,
    item: usize,
) -> Result<()> {
    let mut gathered = Vec::new();
    for (length, copy) in copies {
        gathered.resize(length, 0);
        let target = copy::CopyTarget::new(&mut gathered);
        // SAFETY: only this thread has the buffer.
        unsafe { copy.run(bytes, target, item, 1)? };
        stream.add(WriteData::Copied(&gathered))?;
    }
    Ok(())
}

/// Fails unless all members append to the array with the same key.
fn check_one_array(path: &ObjectPath, parts: &[Vec<u8>]) -> Result<()> {
    let key = |part: &Vec<u8>| part.get(16..).map(<[u8]>::to_vec);
    let first = parts.first().and_then(key);
    match parts.iter().position(|part| key(part) != first) {
        None => Ok(()),
        Some(rank) => Err(Error::invalid(format!(
            "ranks 0 and {rank} append to different arrays {path}, of which one has replaced the \
             other: open the store again in all processes, and start a new session"
        ))),
    }
}

/// Returns the new end of the array, then the start of each member's part, each as a `u64`.
fn append_starts(parts: &[Vec<u8>]) -> Vec<u8> {
    let number = |part: &[u8], at: usize| {
        part.as_chunks::<8>().0.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let mut end = parts.iter().map(|part| number(part, 0)).max().unwrap_or(0);
    let mut starts = Vec::with_capacity(parts.len());
    for part in parts {
        starts.push(end);
        end = end.saturating_add(number(part, 1));
    }
    [end].into_iter().chain(starts).flat_map(u64::to_le_bytes).collect()
}

/// Fails if `boxes`, within `record` if there is one, do not lie in an array of `shape`.
fn check_boxes_within(boxes: &Boxes, record: Option<u64>, shape: &[u64]) -> Result<()> {
    let inner = match (record, shape.split_first()) {
        (None, _) => shape,
        (Some(record), Some((records, inner))) if record < *records => inner,
        (Some(record), _) => {
            let text = format!("there is no record {record} in an array of shape {shape:?}");
            return Err(Error::new(ErrorKind::OutOfBounds, text));
        }
    };
    if boxes.rank() != inner.len() {
        let (axes, what) = (boxes.rank(), if record.is_some() { "a record of " } else { "" });
        let text = format!("boxes of {axes} axes do not lie in {what}an array of shape {shape:?}");
        return Err(Error::invalid(text));
    }
    boxes.validate(inner).map_err(|error| Error::new(ErrorKind::OutOfBounds, error.to_string()))
}

fn outside(path: &ObjectPath, error: &LogError) -> Error {
    Error::new(ErrorKind::OutOfBounds, error.to_string()).at(path.to_string())
}

fn check_bytes(path: &ObjectPath, given: usize, elements: Option<u64>, item: usize) -> Result<()> {
    let needed = elements.and_then(|count| count.checked_mul(item as u64));
    if needed == Some(given as u64) {
        return Ok(());
    }
    let needed = needed.map_or_else(|| "more than there can be".to_owned(), |n| n.to_string());
    Err(Error::invalid(format!(
        "{given} bytes were given for {path}, the selection needs {needed}"
    )))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bedform_format::ObjectPath;
    use bedform_format::log::Boxes;
    use bedform_geometry::Selection;
    use bedform_storage::MemoryStorage;
    use serde_json::{Map, json};

    use crate::comm::{Alone, threads};
    use crate::log::session::{Session, SessionOptions};
    use crate::{Elements, ErrorKind, NewArray, OpenOptions, Store};

    fn store_of(shape: u64) -> (Store, ObjectPath) {
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let store = Store::create(Arc::new(MemoryStorage::new()), &Map::new(), options).unwrap();
        let path = ObjectPath::parse("t").unwrap();
        let new = json!({"shape": [shape], "dtype": "uint8", "chunks": [2], "shards": [4]});
        let new = NewArray::from_json(&new, &Default::default()).unwrap();
        store.create_array(&path, &new).unwrap();
        (store, path)
    }

    #[test]
    fn forgotten_boxes_are_freed_and_their_writes_stay() {
        let (store, path) = store_of(8);
        let mut session = store.session(Box::new(Alone), SessionOptions::default()).unwrap();
        let mut declare = |at: u64| session.declare(Boxes::one(&[at], &[2]).unwrap()).unwrap();
        let (first, second) = (declare(0), declare(4));
        session.write_declared(&path, None, first, &[1, 2]).unwrap();
        session.forget(first);
        session.forget(first);
        let third = session.declare(Boxes::one(&[6], &[2]).unwrap()).unwrap();
        assert_ne!(first, third, "a number is never given twice");
        assert_eq!(session.declared.len(), 2);
        let error = session.write_declared(&path, None, first, &[7, 7]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        session.write_declared(&path, None, second, &[3, 4]).unwrap();
        session.write_declared(&path, None, third, &[5, 6]).unwrap();
        session.close().unwrap();
        let mut bytes = [9; 8];
        store.array(&path).unwrap().read(&Selection::all(&[8]), &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 0, 0, 3, 4, 5, 6]);
    }

    #[test]
    fn a_member_that_writes_where_another_has_resized_is_told_to_resize_as_well() {
        let (store, path) = store_of(4);
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let (store, path) = (&store, &path);
            let act = move |mut session: Session, rank: u32| {
                if rank == 0 {
                    session.resize(path, &[8]).unwrap();
                }
                let selection = Selection::all(&[8]);
                let data = Elements::Bytes(&[rank.to_le_bytes()[0] + 1; 8]);
                let first = session.write(path, &selection, data).map(drop);
                session.resize(path, &[8]).unwrap();
                session.write(path, &selection, data).unwrap();
                session.close().unwrap();
                first
            };
            let all: Vec<_> = (0..)
                .zip(threads(2))
                .map(|(rank, member)| {
                    scope.spawn(move || {
                        let options = SessionOptions::default();
                        act(store.session(Box::new(member), options).unwrap(), rank)
                    })
                })
                .collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(outcomes[0].is_ok());
        let error = outcomes[1].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfBounds);
        assert!(error.to_string().contains("call resize in this one as well"), "{error}");
        let mut bytes = [9; 8];
        store.array(&path).unwrap().read(&Selection::all(&[8]), &mut bytes).unwrap();
        assert_eq!(bytes, [2; 8], "the later rank counts");
    }
}
