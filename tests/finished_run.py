"""What results.json of a good run holds: on sprites, and on images."""

import math

GOOD = {
    "half_range_degrees": 88.14,
    "half_range_raw_degrees": 86.4,
    "true_half_range_degrees": 90.0,
    "outside_share": 0.0213,
    "kolmogorov_distance": 0.046,
    "test_accuracy": 0.9983,
    "test_accuracy_averaged": 0.985,
    "entropy": -0.004,
    "log_volume": math.log(2),
    "entropy_floor": -1.5,
    "seconds": 251.0,
    "seed": 3,
    "steps": 6000,
    "method": "flow",
    "collapsed": False,
    "saturated": False,
    "saturated_share": 0.0012,
}
IMAGES = {
    "method": "flow",
    "test_accuracy": 0.9842,
    "test_accuracy_averaged": 0.98734,
    "evaluation_rule": "plain",
    "evaluation_average": "probs",
    "evaluation_samples": 20,
    "test_accuracy_plain_probs": 0.98734,
    "test_accuracy_code_logits": 0.9881,
    "paper": "99.2 ± 0.1 (Table 1)",
    "entropy": 1.25,
    "entropy_floor": -3.0,
    "log_volume": 6 * math.log(2),
    "saturated_share": 0.01,
    "half_range_scale": 0.2345,
    "half_range_rotation": 24.56,
    "half_range_translation_x": 0.1,
}
