"""The studies behind bayesify: experiments that reproduce published results, and benchmarks of speed and memory."""
