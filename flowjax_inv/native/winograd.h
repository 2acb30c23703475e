/* A convolution with a 3 x 3 kernel, the maximum of every 2 x 2, bias and ReLU; needs onednn.h. */

/* How many numbers it works in, beginning at a multiple of 64 bytes; 0 for what it does not compute,
   or not on this processor. */
int64_t flowjax_inv_winograd_room(const key *k);

/* What it writes is pooled; the key has the outputs' sizes before. */
void flowjax_inv_winograd(const key *k, float *const *arrays, const float *bias, int relu, float *room);
