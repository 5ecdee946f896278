// One-shot and mesh in bulk, and direct: for memory where whoever sees a flag sees the data stored before it.
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

#include "layout.h"
#include "memory_order.h"
#include "arithmetic.h"
#include "geometry.h"
#include "call.h"
#include "fold.h"
#include "push.h"
#include "bulk.h"

#define WIDTH w1
#define LOG2_ELEM 0
#include "bulk.inc"
#undef WIDTH
#undef LOG2_ELEM

#define WIDTH w2
#define LOG2_ELEM 1
#include "bulk.inc"
#undef WIDTH
#undef LOG2_ELEM

#define WIDTH w4
#define LOG2_ELEM 2
#include "bulk.inc"
#undef WIDTH
#undef LOG2_ELEM

#define WIDTH w8
#define LOG2_ELEM 3
#include "bulk.inc"
#undef WIDTH
#undef LOG2_ELEM
