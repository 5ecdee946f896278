/* Level Zero from the real headers, and calls whose result must be the expected one. */
#pragma once

#include <level_zero/ze_api.h>
#include <stdio.h>
#include <stdlib.h>

static void check(ze_result_t result, ze_result_t expected, const char *what)
{
    if (result != expected) {
        printf("%s: 0x%x, not 0x%x\n", what, (unsigned)result, (unsigned)expected);
        exit(2);
    }
}
#define CHECK(call) check(call, ZE_RESULT_SUCCESS, #call)
#define EXPECT(expected, call) check(call, expected, #call)
