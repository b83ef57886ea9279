//! The signatures of the methods of the storage traits, once: the table behind
//! [`forward!`](crate::forward) and [`lacks!`](crate::lacks).
//!
//! `storage_method!([how] Trait method)` finds the row of a method and hands its signature to
//! `write_method!`, which writes the method with the body that `how` stands for. A row ends with
//! the arguments of hooks: the operation, its object or directory and its durability, or the bytes
//! that a system call transfers. A method without a row can neither be forwarded nor be lacking, so
//! each implementation writes it.

/// Writes the named method of a storage trait. See [`forward!`](crate::forward).
#[doc(hidden)]
#[macro_export]
macro_rules! storage_method {
    ($how:tt Storage name) => { $crate::write_method!($how fn name(&self) -> String); };
    ($how:tt Storage identity) => { $crate::write_method!($how
        fn identity(&self) -> Option<String>); };
    ($how:tt Storage open) => { $crate::write_method!($how
        fn open(&self, path: &$crate::ObjectPath)
            -> $crate::implement::Result<Box<dyn $crate::Object>>; Open path); };
    ($how:tt Storage is_remote) => { $crate::write_method!($how fn is_remote(&self) -> bool); };
    ($how:tt Storage open_end) => { $crate::write_method!($how
        fn open_end(&self, path: &$crate::ObjectPath, bytes: u64)
            -> $crate::implement::Result<Box<dyn $crate::Object>>; Open path); };
    ($how:tt Storage request_end) => { $crate::write_method!($how
        fn request_end(&self, path: &$crate::ObjectPath, bytes: u64,
            bell: &::std::sync::Arc<$crate::Bell>) -> Option<$crate::PendingObject>); };
    ($how:tt Storage stat) => { $crate::write_method!($how
        fn stat(&self, path: &$crate::ObjectPath) -> $crate::implement::Result<$crate::Version>;
            Stat path); };
    ($how:tt Storage modified_ns) => { $crate::write_method!($how
        fn modified_ns(&self, path: &$crate::ObjectPath) -> $crate::implement::Result<i64>;
            Stat path); };
    ($how:tt Storage now) => { $crate::write_method!($how
        fn now(&self) -> $crate::implement::Result<i64>); };
    ($how:tt Storage is_current) => { $crate::write_method!($how
        fn is_current(&self, path: &$crate::ObjectPath, version: &$crate::Version)
            -> $crate::implement::Result<bool>; IsCurrent path); };
    ($how:tt Storage create) => { $crate::write_method!($how
        fn create(&self, path: &$crate::ObjectPath, durability: $crate::Durability,
            hint: $crate::WriteHint)
            -> $crate::implement::Result<Box<dyn $crate::ObjectWriter + '_>>;
            Create path durability); };
    ($how:tt Storage put) => { $crate::write_method!($how
        fn put(&self, path: &$crate::ObjectPath, bytes: &[u8], durability: $crate::Durability,
            condition: $crate::Condition<'_>) -> $crate::implement::Result<$crate::Version>;
            Append path durability); };
    ($how:tt Storage grow) => { $crate::write_method!($how
        fn grow(&self, path: &$crate::ObjectPath, durability: $crate::Durability,
            size_hint: Option<u64>) -> $crate::implement::Result<Box<dyn $crate::GrowingObject>>;
            Grow path durability); };
    ($how:tt Storage grow_lane) => { $crate::write_method!($how
        fn grow_lane(&self, path: &$crate::ObjectPath, lane: $crate::Lane,
            durability: $crate::Durability)
            -> $crate::implement::Result<Box<dyn $crate::GrowingObject>>; Grow path durability); };
    ($how:tt Storage sibling) => { $crate::write_method!($how
        fn sibling(&self, suffix: &str)
            -> $crate::implement::Result<::std::sync::Arc<dyn $crate::Storage>>); };
    ($how:tt Storage within) => { $crate::write_method!($how
        fn within(&self, path: &$crate::ObjectPath)
            -> $crate::implement::Result<::std::sync::Arc<dyn $crate::Storage>>); };
    ($how:tt Storage workspace) => { $crate::write_method!($how
        fn workspace(&self, directory: &$crate::ObjectPath, name: $crate::WorkspaceName<'_>)
            -> $crate::implement::Result<Option<Box<dyn $crate::Workspace>>>; Stage directory); };
    ($how:tt Storage publish_tree) => { $crate::write_method!($how
        fn publish_tree(&self, staged: &$crate::ObjectPath, target: &$crate::ObjectPath,
            how: $crate::TreePublication, durability: $crate::Durability)
            -> $crate::implement::Result<()>; PublishTree target durability); };
    ($how:tt Storage publish_object) => { $crate::write_method!($how
        fn publish_object(&self, staged: &$crate::ObjectPath, target: &$crate::ObjectPath,
            durability: $crate::Durability) -> $crate::implement::Result<()>;
            PublishObject target durability); };
    ($how:tt Storage delete) => { $crate::write_method!($how
        fn delete(&self, path: &$crate::ObjectPath, durability: $crate::Durability,
            condition: $crate::Condition<'_>) -> $crate::implement::Result<()>;
            Delete path durability); };
    ($how:tt Storage delete_tree) => { $crate::write_method!($how
        fn delete_tree(&self, path: &$crate::ObjectPath, durability: $crate::Durability)
            -> $crate::implement::Result<()>; DeleteTree path durability); };
    ($how:tt Storage list) => { $crate::write_method!($how
        fn list(&self, path: &$crate::ObjectPath)
            -> $crate::implement::Result<Vec<$crate::ListedEntry>>; List path); };
    ($how:tt Storage sync) => { $crate::write_method!($how
        fn sync(&self, path: &$crate::ObjectPath) -> $crate::implement::Result<()>; Sync path); };
    ($how:tt Storage can_sync_all) => { $crate::write_method!($how
        fn can_sync_all(&self) -> bool); };
    ($how:tt Storage sync_all) => { $crate::write_method!($how
        fn sync_all(&self, directories: &[$crate::ObjectPath])
            -> $crate::implement::Result<$crate::SyncAll<'_>>); };
    ($how:tt Storage lock) => { $crate::write_method!($how
        fn lock(&self, path: &$crate::ObjectPath)
            -> $crate::implement::Result<Box<dyn $crate::Lock>>; Lock path); };
    ($how:tt Storage try_lock) => { $crate::write_method!($how
        fn try_lock(&self, path: &$crate::ObjectPath)
            -> $crate::implement::Result<Option<Box<dyn $crate::Lock>>>; Lock path); };
    ($how:tt Storage try_lock_of_dead) => { $crate::write_method!($how
        fn try_lock_of_dead(&self, path: &$crate::ObjectPath)
            -> $crate::implement::Result<Option<Box<dyn $crate::Lock>>>; Lock path); };
    ($how:tt Storage sweep) => { $crate::write_method!($how
        fn sweep(&self, path: &$crate::ObjectPath) -> $crate::implement::Result<u64>;
            Sweep path); };

    ($how:tt Object version) => { $crate::write_method!($how
        fn version(&self) -> &$crate::Version); };
    ($how:tt Object read) => { $crate::write_method!($how
        fn read(&self, offset: u64, buffer: &mut [u8]) -> $crate::implement::Result<()>); };
    ($how:tt Object read_past) => { $crate::write_method!($how
        fn read_past<'b>(&self, offset: u64, length: usize, block: &'b mut $crate::ReadBlock)
            -> $crate::implement::Result<Option<&'b [u8]>>); };
    ($how:tt Object read_ahead) => { $crate::write_method!($how
        fn read_ahead(&self, offset: u64, length: u64) -> bool); };
    ($how:tt Object request) => { $crate::write_method!($how
        fn request(&self, offset: u64, length: u64, bell: &::std::sync::Arc<$crate::Bell>)
            -> Option<$crate::Answer<$crate::Bytes>>); };
    ($how:tt Object read_resident) => { $crate::write_method!($how
        fn read_resident(&self, offset: u64, buffer: &mut [u8])
            -> $crate::implement::Result<usize>); };
    ($how:tt Object buffered_range) => { $crate::write_method!($how
        fn buffered_range(&self) -> ::std::ops::Range<u64>); };
    ($how:tt Object buffered_bytes) => { $crate::write_method!($how
        fn buffered_bytes(&self, offset: u64, length: usize) -> Option<&[u8]>); };
    ($how:tt Object kept) => { $crate::write_method!($how
        fn kept(&self) -> Option<::std::sync::Arc<dyn $crate::Object>>); };
    ($how:tt Object is_current) => { $crate::write_method!($how
        fn is_current(&self) -> $crate::implement::Result<bool>); };

    // `publish` consumes the writer, so a wrapper takes itself apart.
    ($how:tt ObjectWriter position) => { $crate::write_method!($how fn position(&self) -> u64); };
    ($how:tt ObjectWriter append) => { $crate::write_method!($how
        fn append(&mut self, bytes: &[u8]) -> $crate::implement::Result<()>); };
    ($how:tt ObjectWriter append_owned) => { $crate::write_method!($how
        fn append_owned(&mut self, bytes: Vec<u8>)
            -> $crate::implement::Result<Option<Vec<u8>>>); };
    ($how:tt ObjectWriter keep_replaced) => { $crate::write_method!($how
        fn keep_replaced(&mut self, suffix: &'static str, path: $crate::ObjectPath) -> ()); };
    ($how:tt ObjectWriter hand_over) => { $crate::write_method!($how
        fn hand_over(&mut self) -> $crate::implement::Result<()>); };

    ($how:tt GrowingObject position) => { $crate::write_method!($how fn position(&self) -> u64); };
    ($how:tt GrowingObject append) => { $crate::write_method!($how
        fn append(&mut self, bytes: &[u8]) -> $crate::implement::Result<()>); };
    ($how:tt GrowingObject flush) => { $crate::write_method!($how
        fn flush(&mut self) -> $crate::implement::Result<()>); };
    ($how:tt GrowingObject sync) => { $crate::write_method!($how
        fn sync(&mut self) -> $crate::implement::Result<()>); };

    ($how:tt FileSystem name) => { $crate::write_method!($how fn name(&self) -> String); };
    ($how:tt FileSystem identity) => { $crate::write_method!($how
        fn identity(&self) -> Option<String>); };
    ($how:tt FileSystem above) => { $crate::write_method!($how
        fn above(&self) -> ::std::io::Result<Option<(Self::Handle, &str)>>); };
    ($how:tt FileSystem open_file) => { $crate::write_method!($how
        fn open_file(&self, path: &str)
            -> ::std::io::Result<(Self::Handle, $crate::file_system::FileStatus)>; (0)); };
    ($how:tt FileSystem open_direct) => { $crate::write_method!($how
        fn open_direct(&self, path: &str)
            -> ::std::io::Result<(Self::Handle, $crate::file_system::FileStatus)>; (0)); };
    ($how:tt FileSystem stat) => { $crate::write_method!($how
        fn stat(&self, path: &str) -> ::std::io::Result<$crate::file_system::FileStatus>; (0)); };
    ($how:tt FileSystem now) => { $crate::write_method!($how
        fn now(&self) -> ::std::io::Result<i64>); };
    ($how:tt FileSystem peek) => { $crate::write_method!($how
        fn peek(&self, path: &str) -> ::std::io::Result<$crate::file_system::FileStatus>; (0)); };
    ($how:tt FileSystem open_directory) => { $crate::write_method!($how
        fn open_directory(&self, path: &str, links: $crate::file_system::LinkPolicy)
            -> ::std::io::Result<Self::Handle>; (0)); };
    ($how:tt FileSystem open_child) => { $crate::write_method!($how
        fn open_child(&self, directory: &Self::Handle, name: &str)
            -> ::std::io::Result<Self::Handle>; (0)); };
    ($how:tt FileSystem create_file) => { $crate::write_method!($how
        fn create_file(&self, directory: &Self::Handle, name: &str)
            -> ::std::io::Result<Self::Handle>; (0)); };
    ($how:tt FileSystem refuse_read_ahead) => { $crate::write_method!($how
        fn refuse_read_ahead(&self, handle: &Self::Handle) -> ()); };
    ($how:tt FileSystem create_file_on) => { $crate::write_method!($how
        fn create_file_on(&self, directory: &Self::Handle, name: &str, target: u32)
            -> ::std::io::Result<Self::Handle>; (0)); };
    ($how:tt FileSystem open_to_write) => { $crate::write_method!($how
        fn open_to_write(&self, directory: &Self::Handle, name: &str)
            -> ::std::io::Result<Self::Handle>; (0)); };
    ($how:tt FileSystem status) => { $crate::write_method!($how
        fn status(&self, handle: &Self::Handle)
            -> ::std::io::Result<$crate::file_system::FileStatus>; (0)); };
    ($how:tt FileSystem stat_child) => { $crate::write_method!($how
        fn stat_child(&self, directory: &Self::Handle, name: &str)
            -> ::std::io::Result<$crate::file_system::FileStatus>; (0)); };
    ($how:tt FileSystem read_at) => { $crate::write_method!($how
        fn read_at(&self, handle: &Self::Handle, offset: u64, buffer: &mut [u8])
            -> ::std::io::Result<usize>; (buffer.len())); };
    ($how:tt FileSystem read_resident) => { $crate::write_method!($how
        fn read_resident(&self, handle: &Self::Handle, offset: u64, buffer: &mut [u8])
            -> ::std::io::Result<usize>; (buffer.len())); };
    ($how:tt FileSystem residency) => { $crate::write_method!($how
        fn residency(&self, handle: &Self::Handle, offset: u64, length: u64)
            -> ::std::io::Result<$crate::file_system::Residency>; (0)); };
    ($how:tt FileSystem read_ahead) => { $crate::write_method!($how
        fn read_ahead(&self, handle: &Self::Handle, offset: u64, length: u64) -> bool); };
    ($how:tt FileSystem write_at) => { $crate::write_method!($how
        fn write_at(&self, handle: &Self::Handle, offset: u64, bytes: &[u8])
            -> ::std::io::Result<usize>; (bytes.len())); };
    ($how:tt FileSystem reserve) => { $crate::write_method!($how
        fn reserve(&self, handle: &Self::Handle, offset: u64, length: u64) -> ::std::io::Result<()>;
            (0)); };
    ($how:tt FileSystem release) => { $crate::write_method!($how
        fn release(&self, handle: &Self::Handle, offset: u64, length: u64) -> ::std::io::Result<()>;
            (0)); };
    ($how:tt FileSystem set_size) => { $crate::write_method!($how
        fn set_size(&self, handle: &Self::Handle, size: u64) -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem set_direct) => { $crate::write_method!($how
        fn set_direct(&self, handle: &Self::Handle, direct: bool) -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem sync_file) => { $crate::write_method!($how
        fn sync_file(&self, handle: &Self::Handle) -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem sync_directory) => { $crate::write_method!($how
        fn sync_directory(&self, directory: &Self::Handle) -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem can_sync_whole) => { $crate::write_method!($how
        fn can_sync_whole(&self) -> bool); };
    ($how:tt FileSystem sync_whole) => { $crate::write_method!($how
        fn sync_whole(&self, handle: &Self::Handle) -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem close) => { $crate::write_method!($how
        fn close(&self, handle: Self::Handle) -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem rename) => { $crate::write_method!($how
        fn rename(&self, from: (&Self::Handle, &str), to: (&Self::Handle, &str),
            replace: $crate::file_system::Replace) -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem rename_directory) => { $crate::write_method!($how
        fn rename_directory(&self, from: (&Self::Handle, &str), to: (&Self::Handle, &str))
            -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem exchange) => { $crate::write_method!($how
        fn exchange(&self, one: (&Self::Handle, &str), other: (&Self::Handle, &str))
            -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem link) => { $crate::write_method!($how
        fn link(&self, from: (&Self::Handle, &str), to: (&Self::Handle, &str))
            -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem unlink) => { $crate::write_method!($how
        fn unlink(&self, directory: &Self::Handle, name: &str) -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem make_directory) => { $crate::write_method!($how
        fn make_directory(&self, directory: &Self::Handle, name: &str) -> ::std::io::Result<()>;
            (0)); };
    ($how:tt FileSystem remove_directory) => { $crate::write_method!($how
        fn remove_directory(&self, directory: &Self::Handle, name: &str) -> ::std::io::Result<()>;
            (0)); };
    ($how:tt FileSystem list) => { $crate::write_method!($how
        fn list(&self, directory: &Self::Handle)
            -> ::std::io::Result<Vec<(String, $crate::file_system::FileKind)>>; (0)); };
    ($how:tt FileSystem lock) => { $crate::write_method!($how
        fn lock(&self, handle: &Self::Handle, wait: $crate::file_system::LockWait)
            -> ::std::io::Result<()>; (0)); };
    ($how:tt FileSystem open_lock_file) => { $crate::write_method!($how
        fn open_lock_file(&self, directory: &Self::Handle, name: &str)
            -> ::std::io::Result<Self::Handle>; (0)); };
    ($how:tt FileSystem token) => { $crate::write_method!($how fn token(&self) -> u64); };
    ($how:tt FileSystem is_overlapped) => { $crate::write_method!($how
        fn is_overlapped(&self) -> bool); };
}

/// Writes a method with this signature and the body that `how` stands for:
///
/// | how | body |
/// |---|---|
/// | `[. field]`, `[**]` | the same method of the field, or of `**self` |
/// | `[. field through hook]` | the hook, which gets the call of the field's method |
/// | `[implement]` | the function of [`implement`](crate::implement) with this name |
/// | `[gives value]` | the value |
/// | `[calls method]` | another method, with the path alone |
/// | `[refuses error]` | an error of the operation |
#[doc(hidden)]
#[macro_export]
macro_rules! write_method {
    ($how:tt fn $name:ident $(<$life:lifetime>)? (&self $(, $argument:ident: $type:ty)*)
        -> $result:ty $(; $($hook:tt)+)?) => {
        #[allow(unused_variables)]
        fn $name $(<$life>)? (&self $(, $argument: $type)*) -> $result {
            $crate::write_method!(@ $how self $name ($($argument),*) $($($hook)+)?)
        }
    };
    ($how:tt fn $name:ident(&mut self $(, $argument:ident: $type:ty)*) -> $result:ty) => {
        fn $name(&mut self $(, $argument: $type)*) -> $result {
            $crate::write_method!(@ $how self $name ($($argument),*))
        }
    };

    (@ [. $field:tt] $self:ident $name:ident $arguments:tt $($hook:tt)*) => {
        $self.$field.$name $arguments
    };
    (@ [**] $self:ident $name:ident $arguments:tt $($hook:tt)*) => { (**$self).$name $arguments };
    (@ [. $field:tt through $hook:ident] $self:ident $name:ident $arguments:tt ($bytes:expr)) => {
        $self.$hook($bytes, || $self.$field.$name $arguments)
    };
    (@ [. $field:tt through $hook:ident] $self:ident $name:ident $arguments:tt
        $operation:ident $path:ident $($durability:ident)?) => {
        $self.$hook(
            $crate::StorageOperation::$operation,
            $path,
            None$(.or(Some($durability)))?,
            || $self.$field.$name $arguments,
        )
    };
    (@ [implement] $self:ident $name:ident ($($argument:ident),*) $($hook:tt)*) => {
        $crate::implement::$name($self, $($argument),*)
    };
    (@ [gives $value:expr] $($rest:tt)*) => { $value };
    (@ [calls $other:ident $($wrap:ident)?] $self:ident $name:ident $arguments:tt
        $operation:ident $path:ident) => {
        $self.$other($path)$(.map($wrap))?
    };
    (@ [refuses $error:ident $($reason:literal)?] $self:ident $name:ident $arguments:tt
        $operation:ident $path:ident $($durability:ident)?) => {
        Err($crate::implement::$error(
            $crate::StorageOperation::$operation.verb(), $path $(, $reason)?
        ))
    };
}
