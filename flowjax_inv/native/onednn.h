/* A convolution of oneDNN's, on one thread. */

#include <stdint.h>

enum { FORWARD, D_IMAGES, D_KERNEL };
enum { IMAGES, KERNEL, OUTPUTS, ARRAYS };
enum { MESSAGE = 256 };

/* What an operation is made for; sizes of images, kernel and outputs. */
typedef struct {
  int64_t map, sizes[ARRAYS][4], stride, padding;
} key;

/* Apply a map to arrays in memory; or write what went wrong. */
void flowjax_inv_convolve(const key *k, float *const *arrays, char *message);

static inline int64_t length(const int64_t *sizes) {
  return sizes[0] * sizes[1] * sizes[2] * sizes[3];
}
