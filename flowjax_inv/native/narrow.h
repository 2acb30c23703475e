/* A convolution of grey or coloured pictures to eight features, bias and ReLU; needs onednn.h. */

/* How many numbers it works in, beginning at a multiple of 64 bytes; 0 for what it does not compute,
   or not on this processor. */
int64_t flowjax_inv_narrow_room(const key *k);

void flowjax_inv_narrow(const key *k, float *const *arrays, const float *bias, int relu, float *room);
