/* The types of data in calls of bedform.h.
 *
 * bedform.h includes this file. It makes the calls with data, such as bf_write, carry the type behind the
 * pointer to the data: in C from C11 on by macros with _Generic, in C++ by templates. Earlier C has no such
 * means: there these calls pass no type, and the calls that end with _as name it. So does a program that
 * defines BF_UNTYPED before it includes bedform.h.
 *
 * A pointer to void or char, and one to a type that no array has, passes no type.
 *
 * Licence: Apache-2.0 or MIT, at your choice. */
#ifndef BEDFORM_TYPES_H
#define BEDFORM_TYPES_H

#if defined(__cplusplus) && !defined(BF_UNTYPED)

#include <complex>
#include <cstddef>

namespace bedform {

/* The name of the type of elements of type T; null if it has none. */
template <typename T>
struct dtype {
  static const char *name() { return 0; }
};

#define BF_DTYPE(type, text)                     \
  template <>                                    \
  struct dtype<type> {                           \
    static const char *name() { return text; }   \
  }
BF_DTYPE(bool, "bool");
BF_DTYPE(signed char, "int8");
BF_DTYPE(short, "int16");
BF_DTYPE(int, "int32");
BF_DTYPE(long, sizeof(long) == 8 ? "int64" : "int32");
BF_DTYPE(unsigned char, "uint8");
BF_DTYPE(unsigned short, "uint16");
BF_DTYPE(unsigned int, "uint32");
BF_DTYPE(unsigned long, sizeof(long) == 8 ? "uint64" : "uint32");
#if __cplusplus >= 201103L
BF_DTYPE(long long, "int64");
BF_DTYPE(unsigned long long, "uint64");
#endif
BF_DTYPE(float, "float32");
BF_DTYPE(double, "float64");
BF_DTYPE(long double, "long double");
BF_DTYPE(std::complex<float>, "complex64");
BF_DTYPE(std::complex<double>, "complex128");
#undef BF_DTYPE

/* Constants, and arrays of arrays, have the type of their elements. */
template <typename T>
struct dtype<const T> : dtype<T> {};
template <typename T, std::size_t N>
struct dtype<T[N]> : dtype<T> {};
template <typename T, std::size_t N>
struct dtype<const T[N]> : dtype<T> {};

} /* namespace bedform */

template <typename T>
inline bf_status bf_read(bf_array array, uint32_t rank, const uint64_t *start, const uint64_t *shape,
                         const int64_t *stride, T *buffer, uint64_t bytes) {
  return bf_read_as(array, rank, start, shape, stride, buffer, bytes, bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_read_boxes(bf_array array, uint32_t rank, uint64_t count, const uint64_t *starts,
                               const uint64_t *shapes, T *buffer, uint64_t bytes) {
  return bf_read_boxes_as(array, rank, count, starts, shapes, buffer, bytes, bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_read_points(bf_array array, uint32_t rank, uint64_t count, const uint64_t *coordinates,
                                T *buffer, uint64_t bytes) {
  return bf_read_points_as(array, rank, count, coordinates, buffer, bytes, bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_points_values(bf_points points, const char *array, T *buffer, uint64_t bytes) {
  return bf_points_values_as(points, array, buffer, bytes, bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_write(bf_array array, uint32_t rank, const uint64_t *start, const uint64_t *shape,
                          const int64_t *stride, T *data, uint64_t bytes) {
  return bf_write_as(array, rank, start, shape, stride, data, bytes, bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_append(bf_array array, uint32_t axis, uint32_t rank, const uint64_t *shape, T *data,
                           uint64_t bytes, uint64_t *start) {
  return bf_append_as(array, axis, rank, shape, data, bytes, start, bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_session_write(bf_session session, const char *path, uint32_t rank, const uint64_t *start,
                                  const uint64_t *shape, T *data, uint64_t bytes) {
  return bf_session_write_as(session, path, rank, start, shape, data, bytes, bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_session_write_borrowed(bf_session session, const char *path, uint32_t rank,
                                           const uint64_t *start, const uint64_t *shape, T *data,
                                           uint64_t bytes, uint64_t *token) {
  return bf_session_write_borrowed_as(session, path, rank, start, shape, data, bytes, token,
                                      bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_session_write_boxes(bf_session session, const char *path, uint32_t rank, uint64_t count,
                                        const uint64_t *starts, const uint64_t *shapes, T *data,
                                        uint64_t bytes) {
  return bf_session_write_boxes_as(session, path, rank, count, starts, shapes, data, bytes,
                                   bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_session_write_points(bf_session session, const char *path, uint32_t rank, uint64_t count,
                                         const uint64_t *coordinates, T *data, uint64_t bytes) {
  return bf_session_write_points_as(session, path, rank, count, coordinates, data, bytes,
                                    bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_session_write_decomposed(bf_session session, const char *path, int64_t record,
                                             bf_decomposition decomposition, T *data, uint64_t bytes) {
  return bf_session_write_decomposed_as(session, path, record, decomposition, data, bytes,
                                        bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_session_write_decomposed_borrowed(bf_session session, const char *path, int64_t record,
                                                      bf_decomposition decomposition, T *data, uint64_t bytes,
                                                      uint64_t *token) {
  return bf_session_write_decomposed_borrowed_as(session, path, record, decomposition, data, bytes, token,
                                                 bedform::dtype<T>::name());
}
template <typename T>
inline bf_status bf_session_append(bf_session session, const char *path, uint32_t axis, uint32_t rank,
                                   const uint64_t *shape, T *data, uint64_t bytes, uint64_t *start) {
  return bf_session_append_as(session, path, axis, rank, shape, data, bytes, start,
                              bedform::dtype<T>::name());
}

#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L && !defined(BF_UNTYPED)

/* Pointers to `type`, and to arrays of it. */
#define BF_CASE(type, name) \
  type * : name, const type * : name, type(*)[] : name, const type(*)[] : name
#define BF_LONG(bytes_4, bytes_8) (sizeof(long) == 8 ? bytes_8 : bytes_4)
#ifdef __STDC_NO_COMPLEX__
#define BF_COMPLEX_CASES
#else
#define BF_COMPLEX_CASES BF_CASE(float _Complex, "complex64"), BF_CASE(double _Complex, "complex128"),
#endif
/* The name of the type that a pointer of a given type points to. */
#define BF_CASES                                                                              \
  BF_CASE(_Bool, "bool"), BF_CASE(signed char, "int8"), BF_CASE(short, "int16"),              \
      BF_CASE(int, "int32"), BF_CASE(long, BF_LONG("int32", "int64")),                        \
      BF_CASE(long long, "int64"), BF_CASE(unsigned char, "uint8"),                           \
      BF_CASE(unsigned short, "uint16"), BF_CASE(unsigned int, "uint32"),                     \
      BF_CASE(unsigned long, BF_LONG("uint32", "uint64")),                                    \
      BF_CASE(unsigned long long, "uint64"), BF_CASE(float, "float32"),                       \
      BF_CASE(double, "float64"), BF_COMPLEX_CASES BF_CASE(long double, "long double")
/* For a pointer to arrays of arrays, what it points to decides. */
#define BF_INNER(data)                                                                        \
  *_Generic((data), void * : (char *)0, const void * : (const char *)0, int : (char *)0, default : (data))
#define BF_DTYPE(data)                                                                        \
  _Generic((data), BF_CASES, default : _Generic((BF_INNER(data)), BF_CASES, default : (const char *)0))

/* The data are the last argument but one, or but two. They are found from the end, because the commas of a
 * compound literal, such as (uint64_t[]){0, 0}, separate arguments of a macro as well. Data that are such a
 * literal need parentheses of their own. */
#define BF_LAST_BUT_1(...) BF_CHOOSE(BF_COUNT(__VA_ARGS__, BF_DOWN_FROM_62), __VA_ARGS__)
#define BF_LAST_BUT_2(...) BF_CHOOSE(BF_COUNT(__VA_ARGS__, BF_DOWN_FROM_61), __VA_ARGS__)
#define BF_CHOOSE(number, ...) BF_CHOOSE_NOW(number, __VA_ARGS__)
#define BF_CHOOSE_NOW(number, ...) BF_PICK_##number(__VA_ARGS__, )
#define BF_COUNT(...) BF_PICK_64(__VA_ARGS__)
#define BF_DOWN_FROM_62                                                                                   \
  62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 39, 38, \
  37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, \
  12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0
#define BF_DOWN_FROM_61                                                                                   \
  61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37, \
  36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, \
  11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0
#define BF_PICK_1(a, ...) a
#define BF_PICK_2(a, ...) BF_PICK_1(__VA_ARGS__)
#define BF_PICK_3(a, ...) BF_PICK_2(__VA_ARGS__)
#define BF_PICK_4(a, ...) BF_PICK_3(__VA_ARGS__)
#define BF_PICK_5(a, ...) BF_PICK_4(__VA_ARGS__)
#define BF_PICK_6(a, ...) BF_PICK_5(__VA_ARGS__)
#define BF_PICK_7(a, ...) BF_PICK_6(__VA_ARGS__)
#define BF_PICK_8(a, ...) BF_PICK_7(__VA_ARGS__)
#define BF_PICK_9(a, ...) BF_PICK_8(__VA_ARGS__)
#define BF_PICK_10(a, ...) BF_PICK_9(__VA_ARGS__)
#define BF_PICK_11(a, ...) BF_PICK_10(__VA_ARGS__)
#define BF_PICK_12(a, ...) BF_PICK_11(__VA_ARGS__)
#define BF_PICK_13(a, ...) BF_PICK_12(__VA_ARGS__)
#define BF_PICK_14(a, ...) BF_PICK_13(__VA_ARGS__)
#define BF_PICK_15(a, ...) BF_PICK_14(__VA_ARGS__)
#define BF_PICK_16(a, ...) BF_PICK_15(__VA_ARGS__)
#define BF_PICK_17(a, ...) BF_PICK_16(__VA_ARGS__)
#define BF_PICK_18(a, ...) BF_PICK_17(__VA_ARGS__)
#define BF_PICK_19(a, ...) BF_PICK_18(__VA_ARGS__)
#define BF_PICK_20(a, ...) BF_PICK_19(__VA_ARGS__)
#define BF_PICK_21(a, ...) BF_PICK_20(__VA_ARGS__)
#define BF_PICK_22(a, ...) BF_PICK_21(__VA_ARGS__)
#define BF_PICK_23(a, ...) BF_PICK_22(__VA_ARGS__)
#define BF_PICK_24(a, ...) BF_PICK_23(__VA_ARGS__)
#define BF_PICK_25(a, ...) BF_PICK_24(__VA_ARGS__)
#define BF_PICK_26(a, ...) BF_PICK_25(__VA_ARGS__)
#define BF_PICK_27(a, ...) BF_PICK_26(__VA_ARGS__)
#define BF_PICK_28(a, ...) BF_PICK_27(__VA_ARGS__)
#define BF_PICK_29(a, ...) BF_PICK_28(__VA_ARGS__)
#define BF_PICK_30(a, ...) BF_PICK_29(__VA_ARGS__)
#define BF_PICK_31(a, ...) BF_PICK_30(__VA_ARGS__)
#define BF_PICK_32(a, ...) BF_PICK_31(__VA_ARGS__)
#define BF_PICK_33(a, ...) BF_PICK_32(__VA_ARGS__)
#define BF_PICK_34(a, ...) BF_PICK_33(__VA_ARGS__)
#define BF_PICK_35(a, ...) BF_PICK_34(__VA_ARGS__)
#define BF_PICK_36(a, ...) BF_PICK_35(__VA_ARGS__)
#define BF_PICK_37(a, ...) BF_PICK_36(__VA_ARGS__)
#define BF_PICK_38(a, ...) BF_PICK_37(__VA_ARGS__)
#define BF_PICK_39(a, ...) BF_PICK_38(__VA_ARGS__)
#define BF_PICK_40(a, ...) BF_PICK_39(__VA_ARGS__)
#define BF_PICK_41(a, ...) BF_PICK_40(__VA_ARGS__)
#define BF_PICK_42(a, ...) BF_PICK_41(__VA_ARGS__)
#define BF_PICK_43(a, ...) BF_PICK_42(__VA_ARGS__)
#define BF_PICK_44(a, ...) BF_PICK_43(__VA_ARGS__)
#define BF_PICK_45(a, ...) BF_PICK_44(__VA_ARGS__)
#define BF_PICK_46(a, ...) BF_PICK_45(__VA_ARGS__)
#define BF_PICK_47(a, ...) BF_PICK_46(__VA_ARGS__)
#define BF_PICK_48(a, ...) BF_PICK_47(__VA_ARGS__)
#define BF_PICK_49(a, ...) BF_PICK_48(__VA_ARGS__)
#define BF_PICK_50(a, ...) BF_PICK_49(__VA_ARGS__)
#define BF_PICK_51(a, ...) BF_PICK_50(__VA_ARGS__)
#define BF_PICK_52(a, ...) BF_PICK_51(__VA_ARGS__)
#define BF_PICK_53(a, ...) BF_PICK_52(__VA_ARGS__)
#define BF_PICK_54(a, ...) BF_PICK_53(__VA_ARGS__)
#define BF_PICK_55(a, ...) BF_PICK_54(__VA_ARGS__)
#define BF_PICK_56(a, ...) BF_PICK_55(__VA_ARGS__)
#define BF_PICK_57(a, ...) BF_PICK_56(__VA_ARGS__)
#define BF_PICK_58(a, ...) BF_PICK_57(__VA_ARGS__)
#define BF_PICK_59(a, ...) BF_PICK_58(__VA_ARGS__)
#define BF_PICK_60(a, ...) BF_PICK_59(__VA_ARGS__)
#define BF_PICK_61(a, ...) BF_PICK_60(__VA_ARGS__)
#define BF_PICK_62(a, ...) BF_PICK_61(__VA_ARGS__)
#define BF_PICK_63(a, ...) BF_PICK_62(__VA_ARGS__)
#define BF_PICK_64(a, ...) BF_PICK_63(__VA_ARGS__)

#define bf_read(...) bf_read_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_1(__VA_ARGS__)))
#define bf_read_boxes(...) bf_read_boxes_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_1(__VA_ARGS__)))
#define bf_read_points(...) bf_read_points_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_1(__VA_ARGS__)))
#define bf_points_values(...) bf_points_values_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_1(__VA_ARGS__)))
#define bf_write(...) bf_write_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_1(__VA_ARGS__)))
#define bf_append(...) bf_append_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_2(__VA_ARGS__)))
#define bf_session_write(...) bf_session_write_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_1(__VA_ARGS__)))
#define bf_session_write_borrowed(...) \
  bf_session_write_borrowed_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_2(__VA_ARGS__)))
#define bf_session_write_boxes(...) \
  bf_session_write_boxes_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_1(__VA_ARGS__)))
#define bf_session_write_points(...) \
  bf_session_write_points_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_1(__VA_ARGS__)))
#define bf_session_write_decomposed(...) \
  bf_session_write_decomposed_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_1(__VA_ARGS__)))
#define bf_session_write_decomposed_borrowed(...) \
  bf_session_write_decomposed_borrowed_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_2(__VA_ARGS__)))
#define bf_session_append(...) bf_session_append_as(__VA_ARGS__, BF_DTYPE(BF_LAST_BUT_2(__VA_ARGS__)))

#endif

#endif
