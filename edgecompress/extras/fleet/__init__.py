"""Many deploys: a matrix of models, targets, devices and profiles, on this machine or on a Ray cluster."""
