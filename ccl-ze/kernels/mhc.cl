// mHC boundaries, for each type of element and number of streams.
#include "layout.h"
#include "memory_order.h"
#include "arithmetic.h"
#include "mhc.h"

// MOST_EARLY: up to how many streams registers keep the weights while X' is rounded, which takes most for float16.
#define TYPE bf16
#define BLOCK 128u
#define ELEMENT 2ul
#define MOST_EARLY 4
#include "mhc_streams.inc"
#undef TYPE
#undef MOST_EARLY

#define TYPE f16
#define MOST_EARLY 2
#include "mhc_streams.inc"
#undef TYPE
#undef MOST_EARLY
#undef BLOCK
#undef ELEMENT

#define TYPE f32
#define BLOCK 64u
#define ELEMENT 4ul
#define MOST_EARLY 4
#include "mhc_streams.inc"
#undef TYPE
#undef BLOCK
#undef ELEMENT
#undef MOST_EARLY
