//! The initialization of the library when it is loaded, before the program begins.

use crate::{arena, fork, inside, next, record, settings};

extern "C" fn start() {
    // The default hook would print to stderr, which belongs to the program.
    std::panic::set_hook(Box::new(|_| {}));
    next::find_all();
    settings::read();
    record::remember_directory();
    // Without the arena or the fork handler, nothing is watched.
    if arena::map() && fork::begin() {
        inside::set_on(true);
    }
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
