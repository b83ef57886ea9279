#!/bin/sh
# Installs the built library $1 with all that goes with it below the directory $2; `make install` calls it.
set -eu
library=$1
prefix=$2
here=$(dirname "$0")
root=$here/../../..
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)

mkdir -p "$prefix/lib/pkgconfig" "$prefix/lib/cmake/bedform" "$prefix/include" \
  "$prefix/share/bedform/fortran"
# To a name of its own first: a program that runs keeps the library that it has.
cp "$library" "$prefix/lib/libbedform.so.new"
chmod 755 "$prefix/lib/libbedform.so.new"
mv -f "$prefix/lib/libbedform.so.new" "$prefix/lib/libbedform.so.$version"
ln -sf "libbedform.so.$version" "$prefix/lib/libbedform.so.0"
ln -sf libbedform.so.0 "$prefix/lib/libbedform.so"

put() {
  cp "$1" "$2"
  chmod 644 "$2"
}
fill() {
  sed "s/@VERSION@/$version/g" "$1" >"$2"
  chmod 644 "$2"
}
for header in "$root"/include/*.h; do
  put "$header" "$prefix/include/$(basename "$header")"
done
for source in "$root"/fortran/*; do
  put "$source" "$prefix/share/bedform/fortran/$(basename "$source")"
done
fill "$here/bedform.pc.in" "$prefix/lib/pkgconfig/bedform.pc"
put "$here/bedform-config.cmake" "$prefix/lib/cmake/bedform/bedform-config.cmake"
fill "$here/bedform-config-version.cmake.in" "$prefix/lib/cmake/bedform/bedform-config-version.cmake"
echo "installed Bedform $version in $prefix"
