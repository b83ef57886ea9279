# find_package(bedform) defines the target bedform::bedform, and bedform_FORTRAN_DIR with the sources of the
# Fortran modules.
get_filename_component(_bedform_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(bedform_FORTRAN_DIR "${_bedform_prefix}/share/bedform/fortran")
if(NOT TARGET bedform::bedform)
  add_library(bedform::bedform SHARED IMPORTED)
  set_target_properties(bedform::bedform PROPERTIES
    IMPORTED_LOCATION "${_bedform_prefix}/lib/libbedform.so"
    IMPORTED_SONAME "libbedform.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_bedform_prefix}/include")
endif()
unset(_bedform_prefix)
