// One-shot and mesh on lines of one form.
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

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
