// A compiled loop, translated: an item per thread, whose bags the host hands over (loops.py).

//{arrays}

//{bags}

//{translated}

//{kernel}
