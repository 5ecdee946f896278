// The ring on lines of one form. README.md says how families are built.
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

#include "layout.h"
#include "memory_order.h"
#include "arithmetic.h"
#include "geometry.h"
#include "call.h"
#include "line.h"

#define ALGORITHM "ring.inc"
#include "widths.inc"
