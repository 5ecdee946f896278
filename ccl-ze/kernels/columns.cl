// All-reduces with the mHC boundary after them by columns, on lines of one form, for each type of element and number of streams.
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

// See push.cl.
#ifdef __NVPTX__
#define TELLS_LATE
#endif

#include "layout.h"
#include "memory_order.h"
#include "arithmetic.h"
#include "geometry.h"
#include "call.h"
#include "line.h"
#include "fold.h"
#include "push.h"
#define OF_COLUMNS
#include "mhc.h"
#include "fused.h"

#define WIDTH w2
#define LOG2_ELEM 1
#include "piece.inc"
#include "undefine.inc"
#undef WIDTH
#undef LOG2_ELEM
#define WIDTH w4
#define LOG2_ELEM 2
#include "piece.inc"
#include "undefine.inc"
#undef WIDTH
#undef LOG2_ELEM

// As in mhc.cl.
#define WIDTH w2
#define LOG2_ELEM 1
#define BLOCK 128u
#define ELEMENT 2ul
#define TYPE bf16
#define DTYPE DTYPE_BFLOAT16
#define MOST_EARLY 4
#include "mhc_streams.inc"
#undef TYPE
#undef DTYPE
#undef MOST_EARLY

#define TYPE f16
#define DTYPE DTYPE_FLOAT16
#define MOST_EARLY 2
#include "mhc_streams.inc"
#undef TYPE
#undef DTYPE
#undef MOST_EARLY
#undef WIDTH
#undef LOG2_ELEM
#undef BLOCK
#undef ELEMENT

#define WIDTH w4
#define LOG2_ELEM 2
#define BLOCK 64u
#define ELEMENT 4ul
#define TYPE f32
#define DTYPE DTYPE_FLOAT32
#define MOST_EARLY 4
#include "mhc_streams.inc"
