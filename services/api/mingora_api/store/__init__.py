"""The SQL of api's tables and of the views it shows, and the shared counts of sign-in attempts."""
