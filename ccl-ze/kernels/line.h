// The three forms of a line, and a pair of the narrowest, which together carry an element of 8 bytes. A form says how many work-items share a line, which words of it each of them handles, and
// how a work-item loads and stores its piece; ring.inc does the rest.
//
// poll_* reads the flag, the last word of the line; once it is there, take_* loads the work-item's piece, and whole_*
// says whether that load saw the flag too, as far as it covers it; put_* stores a piece.
#ifndef CCL_LINE_H
#define CCL_LINE_H

// Bytes of a line, work-items to a line, words of one work-item's piece.
#define LINE_BYTES_8 8u
#define LANES_8 1u
#define PIECE_8 1u
#define LINE_BYTES_pair 16u
#define LANES_pair 1u
#define PIECE_pair 2u
#define LINE_BYTES_16 16u
#define LANES_16 1u
#define PIECE_16 3u
#define LINE_BYTES_64 64u
#define LANES_64 4u
#define PIECE_64 4u

// Its words, of which the first PIECE count; then, where there is room, the flag.
typedef uint4 piece;

// 8 bytes.
INLINE uint poll_8(global const uchar *line)
{
    return poll_word((global const uint *)line + 1);
}

INLINE piece take_8(global const uchar *line, uint lane)
{
    return (piece)(load_line_8((global const uint2 *)line), 0, 0);
}

// This uses every word besides: of a vector that is used in part, IGC makes a narrower, *cached* load.
INLINE bool whole_8(piece words, uint lane, uint tag)
{
    return words.y == tag;
}

INLINE void put_8(global uchar *line, uint lane, piece words, uint tag)
{
    store_line_8((global uint2 *)line, (uint2)(words.x, tag));
}

// Twice 8 bytes: two lines with a flag each, the words of the element in x and y and the flags in z and w. Only the
// second flag is polled, since IGC would make one *cached* load of two polls so near each other; whole_pair sees both.
INLINE uint poll_pair(global const uchar *line)
{
    return poll_word((global const uint *)line + 3);
}

INLINE piece take_pair(global const uchar *line, uint lane)
{
    const uint2 first = load_line_8((global const uint2 *)line), second = load_line_8((global const uint2 *)line + 1);
    return (piece)(first.x, second.x, first.y, second.y);
}

INLINE bool whole_pair(piece words, uint lane, uint tag)
{
    return words.z == tag && words.w == tag;
}

INLINE void put_pair(global uchar *line, uint lane, piece words, uint tag)
{
    store_line_8((global uint2 *)line, (uint2)(words.x, tag));
    store_line_8((global uint2 *)line + 1, (uint2)(words.y, tag));
}

// 16 bytes.
INLINE uint poll_16(global const uchar *line)
{
#ifdef MUTANT_VECTOR_POLL
    return load_line_16((global const uint4 *)line).w;
#else
    return poll_word((global const uint *)line + 3);
#endif
}

INLINE piece take_16(global const uchar *line, uint lane)
{
    return load_line_16((global const uint4 *)line);
}

INLINE bool whole_16(piece words, uint lane, uint tag)
{
    return words.w == tag;
}

INLINE void put_16(global uchar *line, uint lane, piece words, uint tag)
{
#ifdef MUTANT_FLAG_FIRST
    // The same memory operations in the wrong order, with time between them for the receiver to be misled.
    store_word((global uint *)line + 3, tag);
    for (uint i = 0; i < 2000; i++)
        fence_before_telling_others();
#endif
    store_line_16((global uint4 *)line, (uint4)(words.xyz, tag));
}

// 64 bytes: four neighbours store 16 each, which the hardware sends as one line. All four poll its one flag.
INLINE uint poll_64(global const uchar *line)
{
    return poll_word((global const uint *)line + 15);
}

INLINE piece take_64(global const uchar *line, uint lane)
{
    return load_line_16((global const uint4 *)line + lane);
}

INLINE bool whole_64(piece words, uint lane, uint tag)
{
    return lane != 3 || words.w == tag;
}

INLINE void put_64(global uchar *line, uint lane, piece words, uint tag)
{
    store_line_16((global uint4 *)line + lane, (uint4)(words.xyz, lane == 3 ? tag : words.w));
}

#endif
