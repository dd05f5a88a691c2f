"""A model beside itself with some weights changed: what each change costs, as KL."""
