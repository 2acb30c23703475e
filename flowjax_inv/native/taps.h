/* The functions of taps.c, and what is known of their arrays. */

#include <stdint.h>

typedef struct {
  int64_t count, height, width, channels, border;
} shape;

/* Maps from `start` to `end`, of 6 numbers; map k reads picture k modulo their count. */
void flowjax_inv_blend(const float *pictures, const float *maps, float *out, const shape *s,
                       int64_t start, int64_t end);

/* The derivative of sum(weights * out) in the 6 numbers of each map. */
void flowjax_inv_slopes(const float *pictures, const float *maps, const float *weights, float *found,
                        const shape *s, int64_t start, int64_t end);
