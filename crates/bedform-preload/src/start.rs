//! What happens when the library is loaded, before the program begins.

use crate::{arena, fork, inside, next, record, settings};

extern "C" fn start() {
    // A panic would be told on stderr, which is the program's.
    std::panic::set_hook(Box::new(|_| {}));
    next::find_all();
    settings::read();
    record::remember_directory();
    // Without memory, or without knowing of children, nothing is watched.
    if arena::map() && fork::begin() {
        inside::set_on(true);
    }
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
