/* A library that uses oneCCL, as torch does. */
int onecclGetVersion(int *);

int user_version(int *version) {
    return onecclGetVersion(version);
}
