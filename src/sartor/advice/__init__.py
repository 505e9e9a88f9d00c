"""Should a client join, be clustered, be personalized?"""
