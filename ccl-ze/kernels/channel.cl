// The collectives besides all-reduce, and sends and receives, on lines of one form.
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

#include "layout.h"
#include "memory_order.h"
#include "arithmetic.h"
#include "geometry.h"
#include "call.h"
#include "line.h"
#include "fold.h"
#include "push.h"
#include "channel.h"

#define PASTE_LINE(name) JOIN(name, LINE)
#define ALGORITHM "channel.inc"
#include "widths.inc"
