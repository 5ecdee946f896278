/* Asks the library that it is linked with for an id, and prints the code. */
#include <stdio.h>

int onecclGetUniqueId(void *);

int main(void) {
    static char id[4096];
    printf("%d\n", onecclGetUniqueId(id));
    return 0;
}
