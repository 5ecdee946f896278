// All-reduces with the mHC boundary after them in one launch, on lines of one form, for each type of element and number of
// streams.
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

#include "layout.h"
#include "memory_order.h"
#include "arithmetic.h"
#include "geometry.h"
#include "call.h"
#include "line.h"
#include "fold.h"
#include "push.h"
#define OF_FUSED
#include "mhc.h"
#include "fused.h"

// Elements of 16 bits, and of 32, in which sums travel as well: see widths.inc.
#define WIDTH w2
#define LOG2_ELEM 1
#include "piece.inc"
#include "phases.inc"
#include "undefine.inc"
#undef WIDTH
#undef LOG2_ELEM
#define WIDTH w4
#define LOG2_ELEM 2
#include "piece.inc"
#include "phases.inc"
#include "undefine.inc"
#undef WIDTH
#undef LOG2_ELEM

#define WIDTH w2
#define LOG2_ELEM 1
#define BLOCK 128u
#define ELEMENT 2ul
#define TYPE bf16
#define DTYPE DTYPE_BFLOAT16
#include "fused_streams.inc"
#undef TYPE
#undef DTYPE

#define TYPE f16
#define DTYPE DTYPE_FLOAT16
#include "fused_streams.inc"
#undef TYPE
#undef DTYPE
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
#include "fused_streams.inc"
