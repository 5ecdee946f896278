/* Stands for oneCCL's own library: it has its name, and answers as no other does. */
int onecclGetVersion(int *version) {
    *version = 99;
    return 0;
}
