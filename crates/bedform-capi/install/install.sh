#!/bin/sh
# Installs the C libraries of the kinds $3... (shared, static) from the directory $1, where cargo has built
# them and the program `bedform`, with all that goes with them below the directory $2; `make install` calls it.
set -eu
built=$1
prefix=$2
shift 2
here=$(dirname "$0")
root=$here/../../..
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
private=

put() {
  cp "$1" "$2"
  chmod 644 "$2"
}
fill() {
  sed -e "s/@VERSION@/$version/g" -e "s/@PRIVATE@/$private/g" -e "s/@PRIVATE_LIST@/$list/g" "$1" >"$2"
  chmod 644 "$2"
}

install_shared() {
  # To a name of its own first: a program that runs keeps the library that it has.
  cp "$built/libbedform_capi.so" "$prefix/lib/libbedform.so.new"
  chmod 755 "$prefix/lib/libbedform.so.new"
  mv -f "$prefix/lib/libbedform.so.new" "$prefix/lib/libbedform.so.$version"
  ln -sf "libbedform.so.$version" "$prefix/lib/libbedform.so.0"
  ln -sf libbedform.so.0 "$prefix/lib/libbedform.so"
  # HDF5 tries every library in the folder of a connector, so that it has its own; it finds the library above
  # from there (vol/engine.c).
  mkdir -p "$prefix/lib/bedform/hdf5"
  cp "$built/libbedform_hdf5.so" "$prefix/lib/bedform/hdf5/libbedform_hdf5.so.new"
  chmod 755 "$prefix/lib/bedform/hdf5/libbedform_hdf5.so.new"
  mv -f "$prefix/lib/bedform/hdf5/libbedform_hdf5.so.new" "$prefix/lib/bedform/hdf5/libbedform_hdf5.so"
}

# The program `bedform`, unless the Python package has put its own there, which has more commands.
install_program() {
  if [ "$(head -c 2 "$prefix/bin/bedform" 2>/dev/null)" = "#!" ]; then
    echo "kept $prefix/bin/bedform, of the Python package"
    return
  fi
  cp "$built/bedform" "$prefix/bin/bedform.new"
  chmod 755 "$prefix/bin/bedform.new"
  mv -f "$prefix/bin/bedform.new" "$prefix/bin/bedform"
}

# One object whose symbols bf_* of the header alone are global: the archive of cargo also has Zstandard, Blosc
# and the like, which a program may link in versions of its own.
install_static() {
  command -v objcopy >/dev/null || { echo "install.sh: objcopy not found: install binutils" >&2; exit 1; }
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cc -r -nostdlib -Wl,--whole-archive,--force-group-allocation "$built/libbedform_capi.a" -o "$work/bedform.o"
  # The bitcode of Rust's own library crashes tools that load a plugin of another LLVM.
  objcopy --wildcard --keep-global-symbol='bf_*' --keep-global-symbol='!bf_hdf5_*' \
    --strip-debug -R .llvmbc -R .llvmcmd "$work/bedform.o"
  ar crs "$work/libbedform.a" "$work/bedform.o"
  put "$work/libbedform.a" "$prefix/lib/libbedform.a"
  private=$(cat "$built/bedform-static-libs")
}

mkdir -p "$prefix/bin" "$prefix/lib/pkgconfig" "$prefix/lib/cmake/bedform" "$prefix/include" \
  "$prefix/share/bedform/fortran"
# An older one would not fit the headers.
rm -f "$prefix/lib/libbedform.a"
for kind; do
  "install_$kind"
done
install_program
list=$(echo "$private" | tr ' ' ';')
for header in "$root"/include/*.h; do
  put "$header" "$prefix/include/$(basename "$header")"
done
for source in "$root"/fortran/*; do
  put "$source" "$prefix/share/bedform/fortran/$(basename "$source")"
done
fill "$here/bedform.pc.in" "$prefix/lib/pkgconfig/bedform.pc"
fill "$here/bedform-config.cmake.in" "$prefix/lib/cmake/bedform/bedform-config.cmake"
fill "$here/bedform-config-version.cmake.in" "$prefix/lib/cmake/bedform/bedform-config-version.cmake"
echo "installed Bedform $version in $prefix"
