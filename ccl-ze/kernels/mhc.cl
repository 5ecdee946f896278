// mHC boundaries, for each type of element and number of streams.
#include "layout.h"
#include "memory_order.h"
#include "arithmetic.h"
#include "mhc.h"

#define TYPE bf16
#define BLOCK 128u
#define ELEMENT 2ul
#include "mhc_streams.inc"
#undef TYPE

#define TYPE f16
#include "mhc_streams.inc"
#undef TYPE
#undef BLOCK
#undef ELEMENT

#define TYPE f32
#define BLOCK 64u
#define ELEMENT 4ul
#include "mhc_streams.inc"
#undef TYPE
#undef BLOCK
#undef ELEMENT
