// Intel MPI and MPICH: one source, built against each. Variants: own (the library's own types and MPI_SUM), and op
// (bfloat16 summed by an operation of the caller's, in AVX2, rounding to nearest even).
#include <immintrin.h>
#include <mpi.h>

#include "contestant.h"

static MPI_Datatype bf16_bits;
static MPI_Op bf16_sum;

static __m256 widen(__m128i bits) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)); }

static __m256i rounded(__m256 sum) {
    __m256i bits = _mm256_castps_si256(sum);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    // A NaN stays one.
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
}

static __m128i added(__m128i a, __m128i b) {
    __m256i sum = rounded(_mm256_add_ps(widen(a), widen(b)));
    return _mm_packus_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
}

static void add_bf16(void *from, void *to, int *count, MPI_Datatype *type) {
    (void)type;
    const uint16_t *a = from;
    uint16_t *b = to;
    int i = 0;
    for (; i + 8 <= *count; i += 8) {
        __m128i sum = added(_mm_loadu_si128((const __m128i *)(a + i)), _mm_loadu_si128((const __m128i *)(b + i)));
        _mm_storeu_si128((__m128i *)(b + i), sum);
    }
    for (; i < *count; i++) {
        __m128i sum = added(_mm_cvtsi32_si128(a[i]), _mm_cvtsi32_si128(b[i]));
        b[i] = (uint16_t)_mm_extract_epi16(sum, 0);
    }
}

static int all_reduce(const char *variant, const void *from, void *to, size_t count, int bf16) {
    if (!bf16) return MPI_Allreduce(from, to, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (variant[1] == 'w') return MPI_Allreduce(from, to, (int)count, MPIX_BFLOAT16, MPI_SUM, MPI_COMM_WORLD);
    return MPI_Allreduce(from, to, (int)count, bf16_bits, bf16_sum, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    int rank, ranks;
    if (argc != 3) return 2;
    if (MPI_Init(&argc, &argv)) return 3;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    contestant_pin(rank);
    MPI_Type_contiguous(2, MPI_BYTE, &bf16_bits);
    MPI_Type_commit(&bf16_bits);
    MPI_Op_create(add_bf16, 1, &bf16_sum);
    contestant_serve(argv[1], rank, ranks, strtoull(argv[2], NULL, 10), all_reduce);
    MPI_Op_free(&bf16_sum);
    MPI_Type_free(&bf16_bits);
    return MPI_Finalize();
}
