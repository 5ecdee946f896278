// The collectives besides all-reduce, and sends and receives, in bulk: for memory where whoever sees a flag sees the data
// stored before it.
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

#include "layout.h"
#include "memory_order.h"
#include "arithmetic.h"
#include "geometry.h"
#include "call.h"
#include "fold.h"
#include "push.h"
#include "bulk.h"
#include "channel.h"

#define WIDTH w1
#define LOG2_ELEM 0
#include "channel_bulk.inc"
#undef WIDTH
#undef LOG2_ELEM

#define WIDTH w2
#define LOG2_ELEM 1
#include "channel_bulk.inc"
#undef WIDTH
#undef LOG2_ELEM

#define WIDTH w4
#define LOG2_ELEM 2
#include "channel_bulk.inc"
#undef WIDTH
#undef LOG2_ELEM

#define WIDTH w8
#define LOG2_ELEM 3
#include "channel_bulk.inc"
#undef WIDTH
#undef LOG2_ELEM
