// One-shot and mesh on lines of one form.
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

// Calls tell the host of themselves when their lines have gone, which on these takes as long as it takes.
#ifdef __NVPTX__
#define TELLS_LATE
// More elements than these are no short message.
#define SHORT_COUNT (1u << 28)
#endif

#include "layout.h"
#include "memory_order.h"
#include "arithmetic.h"
#include "geometry.h"
#include "call.h"
#include "line.h"
#include "fold.h"
#include "push.h"

#define ALGORITHM "push.inc"
#include "widths.inc"
